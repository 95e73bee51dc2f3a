// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

func addAppFlags(f *pflag.FlagSet, o *manager.Options) {
	f.BoolVar(&o.IsolateSpaces, "isolate-spaces", false, "create a NetworkPolicy for each CF space that allows traffic to its Pods only from the same space; allow routers with your own NetworkPolicies")
	f.StringVar(&o.RouteGateway, "route-gateway", "", "NAMESPACE/NAME of the Gateway that serves the routes of apps, as HTTPRoutes; empty creates Ingresses")
	f.StringVar(&o.RouteIngressClass, "route-ingress-class", "", "class of the Ingresses for the routes of apps; empty means the cluster's default")
	f.BoolVar(&o.TrustNodeImages, "trust-node-images", false, "use imagePullPolicy IfNotPresent for apps, which skips the registry's authorization for images that a node has cached")
	f.DurationVar(&o.InstanceStopDelay, "instance-stop-delay", manager.DefaultInstanceStopDelay, "how long an instance with a port keeps serving after its removal from its Services, if other instances can replace it; gateways then lose no request; 0 means no delay")
	addKpackFlags(f, &o.Kpack)
}

func addKpackFlags(f *pflag.FlagSet, o *manager.KpackOptions) {
	f.StringVar(&o.Repository, "kpack-repository", "", "let kpack build pushed source code, and store the images as REPOSITORY/SPACE:BUILD; empty leaves builds to another builder; see docs/cf.md")
	f.StringVar(&o.Builder, "kpack-builder", manager.DefaultKpackBuilder, "builder of kpack, as ClusterBuilder/NAME, or Builder/NAME for one in each space")
	f.StringVar(&o.ServiceAccount, "kpack-service-account", manager.DefaultKpackServiceAccount, "name of the ServiceAccount in each space whose Secrets kpack uses to read source code and to write images")
	f.StringVar(&o.PullSecret, "kpack-pull-secret", "", "name of the Secret in each space with which instances pull built images; empty means that no Secret is needed")
}
