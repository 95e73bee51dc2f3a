module github.com/torpor-dev/torpor

go 1.26.0

require (
	github.com/aws/aws-sdk-go-v2 v1.45.0
	github.com/google/go-cmp v0.7.0
	k8s.io/api v0.37.2
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
	sigs.k8s.io/controller-runtime v0.25.2
)

replace github.com/torpor-dev/torpor/conditional => ./conditional
