// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	callTimeout = 10 * time.Second
	answerLimit = 1 << 20
)

// cloudClient implements the part of the EC2 Query API that is needed to run machines.
type cloudClient struct {
	endpoint, region, accessKey string
	http                        *http.Client
}

type machineSpec struct {
	name, infraID, log string
	command            []string
}

type instancesAnswer struct {
	Instances []struct {
		ID      string `xml:"instanceId"`
		Address string `xml:"privateIpAddress"`
		State   string `xml:"instanceState>name"`
	} `xml:"reservationSet>item>instancesSet>item"`
}

func newCloudClient(endpoint, region, accessKey string) *cloudClient {
	return &cloudClient{endpoint: endpoint, region: region, accessKey: accessKey, http: &http.Client{Timeout: callTimeout}}
}

// ensureRunning finds the machine by its name, or launches it if it does not exist. It waits until the machine is
// running, and returns its address.
func (c *cloudClient) ensureRunning(ctx context.Context, m machineSpec) (string, error) {
	found, err := c.findMachine(ctx, m)
	if err != nil {
		return "", err
	}
	if len(found.Instances) == 0 {
		if err := c.runMachine(ctx, m); err != nil {
			return "", err
		}
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, stepTimeout, true, func(ctx context.Context) (bool, error) {
		found, err = c.findMachine(ctx, m)
		return err == nil && len(found.Instances) == 1 && found.Instances[0].State == "running", nil
	})
	if err != nil {
		return "", fmt.Errorf("wait for machine %s to run: %w", m.name, err)
	}
	return found.Instances[0].Address, nil
}

func (c *cloudClient) findMachine(ctx context.Context, m machineSpec) (instancesAnswer, error) {
	var out instancesAnswer
	err := c.callAction(ctx, url.Values{
		"Action": {"DescribeInstances"}, "Filter.1.Name": {"tag:Name"}, "Filter.1.Value.1": {m.name},
		"Filter.2.Name": {"instance-state-name"}, "Filter.2.Value.1": {"pending"}, "Filter.2.Value.2": {"running"},
		"Filter.2.Value.3": {"stopping"}, "Filter.2.Value.4": {"stopped"},
	}, &out)
	return out, err
}

func (c *cloudClient) runMachine(ctx context.Context, m machineSpec) error {
	form := url.Values{
		"Action": {"RunInstances"}, "ImageId": {"ami-local"}, "InstanceType": {"m5.large"}, "MinCount": {"1"}, "MaxCount": {"1"},
		// If the response is lost, a repeated call must return the machine of the first call.
		"ClientToken":                     {m.name},
		"TagSpecification.1.ResourceType": {"instance"},
		"TagSpecification.1.Tag.1.Key":    {"Name"}, "TagSpecification.1.Tag.1.Value": {m.name},
		"TagSpecification.1.Tag.2.Key": {"kubernetes.io/cluster/" + m.infraID}, "TagSpecification.1.Tag.2.Value": {"owned"},
	}
	if len(m.command) > 0 {
		data, err := json.Marshal(map[string]any{"command": m.command, "log": m.log})
		if err != nil {
			return fmt.Errorf("encode command: %w", err)
		}
		form.Set("UserData", base64.StdEncoding.EncodeToString(data))
	}
	return c.callAction(ctx, form, nil)
}

func (c *cloudClient) callAction(ctx context.Context, form url.Values, into any) error {
	action := form.Get("Action")
	form.Set("Version", "2016-11-15")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// The simulated cloud checks the key and the region, not the signature.
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/%s/ec2/aws4_request, SignedHeaders=host, Signature=0",
		c.accessKey, time.Now().UTC().Format("20060102"), c.region))
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: expected 200, found %s: %w", action, resp.Status, errors.New(string(body)))
	}
	if into == nil {
		return nil
	}
	if err := xml.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: decode answer: %w", action, err)
	}
	return nil
}
