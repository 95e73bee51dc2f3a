// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// callNodeGroup sends a request for the node group workers, and returns the status of the answer, the code of its error
// and the node group.
func callNodeGroup(t *testing.T, c *Cloud, method, path, body string) (status int, code string, found map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/clusters/shop/node-groups/workers"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/"+c.config.Region+"/eks/aws4_request, SignedHeaders=host, Signature=0")
	w := httptest.NewRecorder()
	c.HTTPHandler().ServeHTTP(w, r)
	var answer struct {
		Group map[string]any `json:"nodegroup"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
	}
	return w.Code, w.Header().Get("X-Amzn-Errortype"), answer.Group
}

func TestANodeGroupSetsTheSizeOfItsGroup(t *testing.T) {
	r := newEnv(t, Config{StartLatency: 50 * time.Millisecond})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.call("CreateTags", "ResourceId.1", id, "Tag.1.Key", joinGroupTag, "Tag.1.Value", "workers-asg")
	r.call("CreateTags", "ResourceId.1", id, "Tag.1.Key", eksClusterTag, "Tag.1.Value", "shop", "Tag.2.Key", nodeGroupTag, "Tag.2.Value", "workers")
	for name, row := range map[string]struct {
		scaling, code string
	}{
		"desired size below the minimum: refused":         {`{"minSize":2,"desiredSize":1,"maxSize":3}`, "InvalidParameterException"},
		"desired size above the maximum: refused":         {`{"desiredSize":2}`, "InvalidParameterException"},
		"maximum of zero: refused":                        {`{"minSize":0,"desiredSize":0,"maxSize":0}`, "InvalidParameterException"},
		"minimum above the current desired size: refused": {`{"minSize":2}`, "InvalidParameterException"},
	} {
		if status, code, _ := callNodeGroup(t, r.cloud, http.MethodPost, "/update-config", `{"scalingConfig":`+row.scaling+`}`); code != row.code || status != http.StatusBadRequest {
			t.Errorf("%s: found status %d and code %q", name, status, code)
		}
	}
	if status, code, _ := callNodeGroup(t, r.cloud, http.MethodPost, "/update-config", `{"scalingConfig":{"minSize":0,"desiredSize":0}}`); status != http.StatusOK {
		t.Fatalf("expected an update, found status %d and code %q", status, code)
	}
	if status, code, _ := callNodeGroup(t, r.cloud, http.MethodPost, "/update-config", `{"scalingConfig":{"minSize":0,"desiredSize":0}}`); status != http.StatusConflict || code != "ResourceInUseException" {
		t.Errorf("expected a conflict during the update, found status %d and code %q", status, code)
	}
	r.awaitState(id, terminated)
	if _, _, found := callNodeGroup(t, r.cloud, http.MethodGet, "", ""); found["status"] != "ACTIVE" {
		t.Errorf("expected the update to have ended, found %v", found)
	}
	// EKS reverts the change of another caller to the Auto Scaling group.
	form := "Action=UpdateAutoScalingGroup&AutoScalingGroupName=workers-asg&DesiredCapacity=1&Version=2011-01-01"
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(form))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", strings.Replace(authorized, "us-east-1", r.cloud.config.Region, 1))
	w := httptest.NewRecorder()
	if r.cloud.HTTPHandler().ServeHTTP(w, request); w.Code != http.StatusOK {
		t.Fatalf("expected the change to be accepted, found %d: %s", w.Code, w.Body)
	}
	eventually(t, "EKS sets the size again", func() bool {
		r.cloud.mu.Lock()
		defer r.cloud.mu.Unlock()
		return r.cloud.state.Groups["workers-asg"].Desired == 0
	})
}
