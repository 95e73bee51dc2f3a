// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// CloudInstance is a machine as the cloud itself sees it.
type CloudInstance struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	State     string            `json:"state"`
	ChangedAt time.Time         `json:"changedAt"`
	PID       int               `json:"pid"`
	PrivateIP string            `json:"privateIP"`
	Tags      map[string]string `json:"tags"`
}

// ListInstances returns the machines of a cluster, all machines for an empty infraID.
func (c *CloudServer) ListInstances(t testing.TB, infraID string) []CloudInstance {
	t.Helper()
	var all []CloudInstance
	c.callAdmin(t, http.MethodGet, "instances", nil, &all)
	return slices.DeleteFunc(all, func(i CloudInstance) bool {
		return infraID != "" && i.Tags[clusterTag(infraID)] != "owned"
	})
}

// ExpectState returns an error unless every machine of the cluster is in the state, for use with Eventually.
func (c *CloudServer) ExpectState(t testing.TB, infraID, state string) error {
	t.Helper()
	machines := c.ListInstances(t, infraID)
	for _, i := range machines {
		if i.State != state {
			return fmt.Errorf("expected %s to be %s, found %s", i.Name, state, i.State)
		}
	}
	if len(machines) == 0 {
		return fmt.Errorf("expected machines of %s, found none", infraID)
	}
	return nil
}

// RunInstances makes n machines without commands, named <infraID>-0 and so on, and returns their ids once they run.
func (c *CloudServer) RunInstances(t testing.TB, infraID string, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, c.runInstance(t, infraID, fmt.Sprintf("%s-%d", infraID, i)))
	}
	Eventually(t, "the machines run", func() error { return c.ExpectState(t, infraID, "running") })
	return ids
}

// StopInstance stops one machine in the cloud itself, without the manager.
func (c *CloudServer) StopInstance(t testing.TB, id string) {
	t.Helper()
	c.callEC2(t, url.Values{"Action": {"StopInstances"}, "InstanceId.1": {id}}, func([]byte) error { return nil })
}

func (c *CloudServer) runInstance(t testing.TB, infraID, name string) string {
	t.Helper()
	var made struct {
		IDs []string `xml:"instancesSet>item>instanceId"`
	}
	c.callEC2(t, url.Values{
		"Action": {"RunInstances"}, "ImageId": {"ami-test"}, "MinCount": {"1"}, "MaxCount": {"1"},
		"TagSpecification.1.ResourceType": {"instance"},
		"TagSpecification.1.Tag.1.Key":    {"Name"}, "TagSpecification.1.Tag.1.Value": {name},
		"TagSpecification.1.Tag.2.Key": {clusterTag(infraID)}, "TagSpecification.1.Tag.2.Value": {"owned"},
	}, func(answer []byte) error { return xml.Unmarshal(answer, &made) })
	if len(made.IDs) != 1 {
		t.Fatalf("RunInstances: expected one machine, found %v", made.IDs)
	}
	return made.IDs[0]
}

// callEC2 speaks the EC2 Query API.
func (c *CloudServer) callEC2(t testing.TB, form url.Values, read func([]byte) error) {
	t.Helper()
	form.Set("Version", "2016-11-15")
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, c.URL, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// The cloud looks at the key and the region, not at the signature.
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+AccessKey+"/20260101/"+Region+"/ec2/aws4_request, SignedHeaders=host, Signature=0")
	c.sendRequest(t, request, read)
}

func clusterTag(infraID string) string { return "kubernetes.io/cluster/" + infraID }
