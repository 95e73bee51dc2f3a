// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/torpor-dev/torpor/internal/cf/imagemetadata"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
)

// TestParse expects the error of a flag to name it, and the errors of all flags to be returned together.
func TestParse(t *testing.T) {
	wrong := []string{"no such value"}
	for flag, o := range map[string]Options{
		"--controllers: ":              {Controllers: wrong},
		"--take-over: ":                {TakeOver: wrong},
		"--webhook-address: ":          {Webhook: WebhookOptions{Address: "9443"}},
		"--allow-endpoints: ":          {AllowEndpoints: wrong},
		"--allow-target-proxies: ":     {AllowTargetProxies: wrong},
		"--aws-assume-roles: ":         {AWSAssumeRoles: wrong},
		"--azure-workload-identities:": {AzureWorkloadIdentities: wrong},
		"--container-engine-sockets: ": {ContainerEngineSockets: wrong},
		"--image-registries: ":         {ImageRegistries: []string{"none", "*"}},
		"--kpack-repository: ":         {Kpack: KpackOptions{Repository: "https://registry.example.com/droplets", Builder: kpack.DefaultBuilder, ServiceAccount: kpack.DefaultServiceAccount}},
		"--kpack-builder: ":            {Kpack: KpackOptions{Repository: "registry.example.com", Builder: "Store/default", ServiceAccount: kpack.DefaultServiceAccount}},
		"--kpack-service-account: ":    {Kpack: KpackOptions{Repository: "registry.example.com", Builder: kpack.DefaultBuilder}},
		"--kpack-pull-secret: ":        {Kpack: KpackOptions{Repository: "registry.example.com", Builder: kpack.DefaultBuilder, ServiceAccount: kpack.DefaultServiceAccount, PullSecret: "No Name"}},
		"--route-gateway: ":            {RouteGateway: "one", RouteIngressClass: "two"},
	} {
		t.Run(flag, func(t *testing.T) {
			if _, err := o.Parse(); err == nil || !strings.HasPrefix(err.Error(), flag) || !strings.Contains(err.Error(), "expected ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("expected one error that begins with %q, found %v", flag, err)
			}
		})
	}
	if _, err := (Options{TakeOver: wrong, AllowEndpoints: wrong}).Parse(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("expected the errors of two flags, found %v", err)
	}
	c, err := Options{Webhook: WebhookOptions{Address: "127.0.0.1:9443"}, ImageRegistries: []string{"*"}, TrustNodeImages: true}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	if w := c.webhook; w == nil || w.host != "127.0.0.1" || w.port != 9443 || w.namespace != defaultNamespace {
		t.Errorf("expected the webhook on 127.0.0.1:9443 with the Service in %s, found %+v", defaultNamespace, w)
	}
	if c.apps.pods.PullPolicy != corev1.PullIfNotPresent || !reflect.DeepEqual(c.apps.registries, imagemetadata.Policy{}) {
		t.Errorf("expected images of nodes to be trusted without a registry, found %+v", c.apps)
	}
	if c, err = (Options{Webhook: WebhookOptions{Address: "0"}}).Parse(); err != nil || c.webhook != nil {
		t.Errorf("expected no webhook, found %+v and the error %v", c.webhook, err)
	}
}
