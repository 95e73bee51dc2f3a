// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// The name of a destination's Service contains the destination's GUID. An unchanged destination must keep its GUID, or
// else its Service is replaced under load.
func TestDestinationsThatStayKeepTheirGUIDs(t *testing.T) {
	t.Parallel()
	to := func(app string, port int32) korifiv1alpha1.RouteDestination {
		return korifiv1alpha1.RouteDestination{AppRef: corev1.LocalObjectReference{Name: app}, ProcessType: korifiv1alpha1.WebProcess, Port: port}
	}
	shop, cart := to("shop", 0), to("cart", 0)
	shop.GUID, cart.GUID = "guid-of-shop", "guid-of-cart"
	before := []korifiv1alpha1.RouteDestination{shop, cart}
	wanted := []korifiv1alpha1.RouteDestination{to("shop", 9090), to("shop", 0), to("shop", 0)}
	for name, row := range map[string]struct {
		replaces bool
		want     []string
	}{
		"replacing destinations keeps the GUID of an equal destination": {true, []string{"", "guid-of-shop"}},
		"adding destinations keeps the GUIDs of existing destinations":  {false, []string{"guid-of-shop", "guid-of-cart", ""}},
	} {
		found := mergeDestinations(before, wanted, row.replaces)
		if len(found) != len(row.want) {
			t.Fatalf("%s: expected %d destinations, found %+v", name, len(row.want), found)
		}
		for i, guid := range row.want {
			if found[i].GUID == "" || guid != "" && found[i].GUID != guid {
				t.Errorf("%s: expected the destination %d to have the GUID %q, or a new GUID, found %q", name, i, guid, found[i].GUID)
			}
		}
	}
}
