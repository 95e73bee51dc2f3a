// SPDX-License-Identifier: Apache-2.0

package page

import (
	"embed"
	"fmt"
	"html/template"
	"strings"
)

//go:embed assets
var assets embed.FS

func parseTemplates() (*template.Template, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"lower":   strings.ToLower,
		"address": func(q viewQuery) string { return "?" + q.encode() },
		"states":  viewStates,
		"stuck":   func(text string) string { return strings.TrimPrefix(text, "it is stuck: ") },
	}).ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the page: %w", err)
	}
	return t, nil
}

// renderPart renders one of the parts of the page that change.
func (s *Server) renderPart(name string, data any) (string, error) {
	var text strings.Builder
	if err := s.templates.ExecuteTemplate(&text, name, data); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	return text.String(), nil
}
