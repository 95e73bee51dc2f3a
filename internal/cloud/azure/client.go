// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes allows a page of a thousand machines of 8 KiB each.
	maxAnswerBytes = 8 << 20
	// firstRetryPause and maxRetryPause limit the pauses between the attempts of a call. If Azure requests a longer
	// pause, the call is not repeated, and the account waits.
	firstRetryPause, maxRetryPause = 500 * time.Millisecond, 5 * time.Second
	// maxApplicationIDBytes is the maximum length that the SDK accepts in the user agent.
	maxApplicationIDBytes = 24
)

// azureCloud is one of Azure's clouds.
type azureCloud struct {
	configuration cloud.Configuration
	// hosts are the only hosts that receive requests: the resource manager and the login.
	hosts []string
}

// findCloud returns a cloud by its name in Hive's API.
func findCloud(name string) (azureCloud, error) {
	switch name {
	case "", "AzurePublicCloud":
		return azureCloud{cloud.AzurePublic, []string{"management.azure.com", "login.microsoftonline.com"}}, nil
	case "AzureUSGovernmentCloud":
		return azureCloud{cloud.AzureGovernment, []string{"management.usgovcloudapi.net", "login.microsoftonline.us"}}, nil
	case "AzureChinaCloud":
		return azureCloud{cloud.AzureChina, []string{"management.chinacloudapi.cn", "login.chinacloudapi.cn", "login.partner.microsoftonline.cn"}}, nil
	default:
		return azureCloud{}, actuator.Errorf(actuator.Other, "spec.platform.azure.cloudName: expected AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud, found %.40q: correct it", name)
	}
}

// newBoundedClient returns an HTTP client for all accounts, with a limit on the size of responses.
func newBoundedClient(endpoints httpguard.Endpoints) policy.Transporter {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: onebyone.ParallelCalls, IdleConnTimeout: 90 * time.Second,
	}
	httpguard.BoundTransport(transport)
	return httpguard.NewClient(transport, maxAnswerBytes, 0)
}

// ownHosts sends requests only to the hosts of a cloud. The URLs of the next page and of the login come from responses,
// and requests to them contain a token or a secret.
type ownHosts struct {
	base  policy.Transporter
	hosts []string
}

// Do implements policy.Transporter.
func (o ownHosts) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || !slices.Contains(o.hosts, r.URL.Host) {
		return nil, &foreignHostError{r.URL.Host}
	}
	answer, err := o.base.Do(r)
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	return answer, nil
}

// foreignHostError reports a request that was not sent because its host is not one of the cloud's.
type foreignHostError struct{ host string }

// Error implements error.
func (e *foreignHostError) Error() string {
	return fmt.Sprintf("%.100q is not a host of Azure", e.host)
}

// NonRetriable implements the SDK's marker interface, because the next attempt would fail in the same way.
func (*foreignHostError) NonRetriable() {}

// accountClient accesses a subscription's machines.
type accountClient struct {
	machines  *armcompute.VirtualMachinesClient
	scaleSets *armcompute.VirtualMachineScaleSetsClient
	usage     *armcompute.UsageClient
	quotas    *cloudrest.QuotaCache
	resource  *arm.Client
	// mayNotReadScaleSets is true if the last listing of scale sets was refused for a missing right.
	mayNotReadScaleSets atomic.Bool
	// subscription is the ID of the subscription. owner identifies it among the accounts of all clouds.
	subscription, owner string
	secrets             []string
	timeout             time.Duration
	// account is the client's public name: a hash of all fields that identify it.
	account string
}

// Name implements rest.OneByOneAccount.
func (c *accountClient) Name() string { return c.account }

// clientFor returns the client for the target's service principal and subscription. If the Secret changes, a new client
// is created.
func (a *Actuator) clientFor(t actuator.Target) (*accountClient, error) {
	p, err := readCredentials(t.Credentials, func(p servicePrincipal) bool { return a.mayUseWorkloadIdentity(t.Namespace, p) })
	if err != nil {
		return nil, err
	}
	where, err := findCloud(t.Cloud)
	if err != nil {
		return nil, err
	}
	fields := []string{where.hosts[0], p.SubscriptionID, p.TenantID, p.ClientID, p.ClientSecret, string(p.pem), strconv.FormatBool(p.isFederated)}
	return a.clients.GetOrBuild(t.Namespace, fields, func(name string) (*accountClient, error) { return a.newClient(p, where, name) })
}

func (a *Actuator) newClient(p servicePrincipal, where azureCloud, account string) (*accountClient, error) {
	version := "torpor/" + buildinfo.ReadVersion().Version
	options := policy.ClientOptions{
		Cloud: where.configuration, Transport: ownHosts{a.options.HTTPClient, where.hosts},
		Retry:     policy.RetryOptions{MaxRetries: a.options.Attempts - 1, RetryDelay: firstRetryPause, MaxRetryDelay: maxRetryPause},
		Telemetry: policy.TelemetryOptions{ApplicationID: version[:min(len(version), maxApplicationIDBytes)]},
	}
	if a.options.Attempts == 1 {
		options.Retry.MaxRetries = -1 // Zero would mean the SDK's default.
	}
	login, err := a.newLogin(p, options)
	if err != nil && p.isFederated {
		return nil, actuator.Errorf(actuator.Other, "the manager has no token of a workload identity: expected AZURE_FEDERATED_TOKEN_FILE to contain the path of its file, as Azure's webhook for workload identities "+
			"sets it for the manager's ServiceAccount; see docs/clouds/azure.md")
	}
	if err != nil {
		return nil, actuator.Errorf(actuator.CredentialsInvalid, "tenantId and clientId of %s in the credentials Secret are rejected by the login: correct them", servicePrincipalKey)
	}
	// Torpor does not register resource providers in a subscription.
	manager := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}
	machines, machinesErr := armcompute.NewVirtualMachinesClient(p.SubscriptionID, login, manager)
	scaleSets, scaleSetsErr := armcompute.NewVirtualMachineScaleSetsClient(p.SubscriptionID, login, manager)
	usage, usageErr := armcompute.NewUsageClient(p.SubscriptionID, login, manager)
	resource, resourceErr := arm.NewClient("torpor", "v1.0.0", login, manager)
	if errors.Join(machinesErr, scaleSetsErr, usageErr, resourceErr) != nil {
		return nil, actuator.Errorf(actuator.Other, "the client for Azure cannot be created: update Torpor")
	}
	return &accountClient{
		machines: machines, scaleSets: scaleSets, usage: usage, quotas: cloudrest.NewQuotaCache(a.options.Clock), resource: resource, subscription: p.SubscriptionID, timeout: a.options.CallTimeout,
		account: account, owner: "azure/" + where.hosts[0] + "/" + strings.ToLower(p.SubscriptionID), secrets: []string{p.ClientSecret},
	}, nil
}

// newLogin returns a credential that fetches tokens on demand, and renews them before they expire.
func (a *Actuator) newLogin(p servicePrincipal, options policy.ClientOptions) (azcore.TokenCredential, error) {
	// The hosts are fixed, so the SDK need not verify that they belong to Azure.
	if p.isFederated {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, TenantID: p.TenantID, ClientID: p.ClientID, TokenFilePath: a.options.TokenFile, DisableInstanceDiscovery: true,
		})
	}
	if p.privateKey != nil {
		return azidentity.NewClientCertificateCredential(p.TenantID, p.ClientID, p.certificates, p.privateKey,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	}
	return azidentity.NewClientSecretCredential(p.TenantID, p.ClientID, p.ClientSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
}
