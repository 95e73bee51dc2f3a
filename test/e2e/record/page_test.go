// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// pageReader reads the page of the manager's own program as a user with permission to list all objects.
type pageReader struct{ url, token string }

func (h *managedHub) openPage(t *testing.T, address string) pageReader {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "onlooker"}}
	h.ExpectCreated(t, account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})
	request := &authenticationv1.TokenRequest{}
	testenv.ExpectNoError(t, h.Client.SubResource("token").Create(t.Context(), account, request))
	return pageReader{"http://" + address, request.Status.Token}
}

// pageRow returns a pattern for the beginning of a row, and its column By.
func pageRow() *regexp.Regexp {
	return regexp.MustCompile(`(?s)<tr data-key="([^"]+)".*?<td class="by"[^>]*>(.*?)</td>`)
}

// readNames returns the values in the By column for the rows of a kind, by key.
func (p pageReader) readNames(t *testing.T, kindName string) (map[string]string, error) {
	t.Helper()
	names := map[string]string{}
	for page := 1; ; page++ {
		query := url.Values{"kind": {kindName}, "page": {strconv.Itoa(page)}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/?"+query.Encode(), http.NoBody)
		testenv.ExpectNoError(t, err)
		request.Header.Set("Authorization", "Bearer "+p.token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, fmt.Errorf("read the page: %w", err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := answer.Body.Close(); err != nil {
			return nil, fmt.Errorf("read the page: %w", err)
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("expected 200, found %d: %w", answer.StatusCode, err)
		}
		for _, row := range pageRow().FindAllStringSubmatch(string(text), -1) {
			names[html.UnescapeString(row[1])] = html.UnescapeString(strings.ReplaceAll(row[2], "<wbr>", ""))
		}
		if !strings.Contains(string(text), `rel="next"`) {
			return names, nil
		}
	}
}

// expectShown waits until the page shows the user of each cell, in all rows of its object.
func (p pageReader) expectShown(t *testing.T, of kind, cells []cell) {
	t.Helper()
	kindName := of.pageName()
	testenv.Eventually(t, "the page shows the users who stopped and started each "+of.name, func() error {
		names, err := p.readNames(t, kindName)
		if err != nil {
			return err
		}
		for _, c := range cells {
			if c.kind.name != of.name || c.verb.creates && !of.isStoppedWhenNew {
				continue
			}
			want, rows := c.nameOf(c.verb.stoppedBy), 0
			if c.verb.startedBy != "" {
				want = c.nameOf(c.verb.startedBy)
			}
			for key, name := range names {
				if !strings.HasPrefix(key, kindName+"/"+metav1.NamespaceDefault+"/"+c.obj.GetName()+"/") {
					continue
				}
				if rows++; name != want {
					return fmt.Errorf("%s: expected %s in the row %s, found %q", c, want, key, name)
				}
			}
			if rows == 0 {
				return fmt.Errorf("%s: expected a row, found none of %d", c, len(names))
			}
		}
		return nil
	})
}
