// SPDX-License-Identifier: Apache-2.0

package page

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// readSavings returns what the last stop of an object saves, for a kind that has such figures.
func readSavings(k *kinds.Kind, obj client.Object) kinds.Savings {
	if saver, saves := k.Definition.(kinds.Saver); saves {
		return saver.ReadSavings(obj)
	}
	return kinds.Savings{}
}
