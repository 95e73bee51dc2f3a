// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestLogFlags(t *testing.T) {
	for name, row := range map[string]struct {
		flags logFlags
		want  []string
		not   []string
	}{
		"level info as JSON: info messages are logged, debug messages are not": {logFlags{level: "info", format: "json"}, []string{`"msg":"stopped"`}, []string{"Starting EventSource", "detail"}},
		"level debug as text: all messages are logged":                         {logFlags{level: "debug", format: "text"}, []string{"msg=stopped", `"Starting EventSource"`, "msg=detail"}, nil},
		"the flag --verbose: debug messages are logged":                        {logFlags{level: "info", format: "text", isVerbose: true}, []string{"msg=detail"}, nil},
		"level error: info messages are not logged":                            {logFlags{level: "error", format: "text"}, nil, []string{"stopped", "detail"}},
		"level info as text: starts of controllers' workers are not logged":    {logFlags{level: "info", format: "text"}, []string{"msg=stopped"}, []string{"Starting workers"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			logger, err := row.flags.buildLogger(&out)
			if err != nil {
				t.Fatal(err)
			}
			logger.Info("Starting EventSource")
			logger.With("controller", "slumber").WithGroup("g").Info("Starting workers")
			logger.Info("stopped")
			logger.Debug("detail")
			for _, text := range row.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("expected %q, found %s", text, out.String())
				}
			}
			for _, text := range row.not {
				if strings.Contains(out.String(), text) {
					t.Errorf("expected no %q, found %s", text, out.String())
				}
			}
		})
	}
	for flag, flags := range map[string]logFlags{"--log-level": {level: "loud", format: "json"}, "--log-format": {level: "info", format: "xml"}} {
		if _, err := flags.buildLogger(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), flag+": expected") {
			t.Errorf("expected an error about %s, found %v", flag, err)
		}
	}
}
