// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// quotaRead lists the quotas of a location, with their use:
// https://learn.microsoft.com/rest/api/compute/usage/list
const quotaRead = "locations/usages/read"

// maxLocationBytes limits the names of locations and quotas, which become parts of URLs and of messages.
const maxLocationBytes = 64

// quotaLocationOf returns the location whose quotas a listed machine uses, or "". Instances of scale sets have no
// location here, because they are not stopped.
func (l machineListing) quotaLocationOf(id string) string {
	if location := l.locations[id]; isPlainName(location) {
		return location
	}
	return ""
}

// isPlainName reports whether a name has only letters and digits, as all names of locations and quotas do.
func isPlainName(name string) bool {
	return name != "" && len(name) <= maxLocationBytes && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// readQuotas returns the exceeded quotas of cores in a location. There are quotas of cores for all machines, and for
// each family of machine sizes.
func (c *accountClient) readQuotas(ctx context.Context, location string) ([]string, error) {
	var exceeded []string
	err := readPages(ctx, c, quotaRead, c.usage.NewListPager(location, nil), func(page armcompute.UsageClientListResponse) (int, error) {
		for _, q := range page.Value {
			if q == nil || q.Name == nil || q.Name.Value == nil || q.CurrentValue == nil || q.Limit == nil {
				continue
			}
			name := *q.Name.Value
			isOfCores := strings.HasSuffix(strings.ToLower(name), "cores") || strings.HasSuffix(name, "Family")
			if isOfCores && isPlainName(name) && int64(*q.CurrentValue) > *q.Limit {
				exceeded = append(exceeded, name)
			}
		}
		return len(page.Value), nil
	})
	return exceeded, err
}
