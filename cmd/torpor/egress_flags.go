// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

// addEgressFlags adds what an administrator decides about servers that users name.
func addEgressFlags(f *pflag.FlagSet, o *manager.Options) {
	f.StringSliceVar(&o.AllowEndpoints, "allow-endpoints", nil, "host names, patterns such as *.example.com, addresses or networks that "+
		"endpoint_url of a credentials Secret may name beside AWS's own; without it all but link-local and metadata addresses")
	f.StringVar(&o.LibvirtSocket, "libvirt-socket", "", "socket of libvirt on the manager's own machine, for credentials Secrets with a URI such as qemu:///system; "+
		"whoever may write one can then stop and start all its machines; without it such URIs are refused")
	f.StringSliceVar(&o.AWSAssumeRoles, "aws-assume-roles", nil, "IAM roles that the manager takes with its own identity for clusters that name them, "+
		"as NAMESPACE=ARN; the namespace may be *, and the ARN a pattern such as arn:aws:iam::123456789012:role/torpor-*")
	f.StringSliceVar(&o.AzureWorkloadIdentities, "azure-workload-identities", nil, "service principals of Azure as which the manager logs in with the token of its own ServiceAccount, "+
		"for clusters whose Secrets name them without a secret, as NAMESPACE=TENANT_ID/CLIENT_ID; the namespace may be *")
	f.StringSliceVar(&o.ContainerEngineSockets, "container-engine-sockets", nil, "sockets of container engines on the manager's own machine that clusters of a namespace may name, "+
		"as NAMESPACE=PATH such as fleet=/var/run/docker.sock: who writes ClusterDeployments there stops any container of the engine")
	f.StringSliceVar(&o.ImageRegistries, "image-registries", []string{"*"}, "registries that are asked for the digest and the EXPOSE of an app's image: * for all with a public address, "+
		"none for nobody, or host names, patterns such as *.example.com, addresses and networks, with http:// before those that speak no TLS")
	f.BoolVar(&o.AllowInsecureTargetClusters, "allow-insecure-target-clusters", false,
		"take kubeconfigs of clusters with plain http, insecure-skip-tls-verify, proxy-url or impersonation")
}
