// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

func BenchmarkListOfApps(b *testing.B) {
	all := make([]*korifiv1alpha1.CFApp, 5000)
	for i := range all {
		all[i] = &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "00000000-0000-4000-8000-" + strconv.Itoa(i)}}
		all[i].Spec.DisplayName, all[i].Spec.DesiredState = "app", korifiv1alpha1.StartedState
	}
	for b.Loop() {
		list := ForList(url.URL{}, payloads.PageQuery{Number: 1, PerPage: len(all)}, all, func(a *korifiv1alpha1.CFApp) AppResponse { return ForApp("https://cf.example.com", a) })
		if err := json.NewEncoder(io.Discard).Encode(list); err != nil {
			b.Fatal(err)
		}
	}
}
