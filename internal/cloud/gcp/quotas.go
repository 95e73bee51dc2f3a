// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// quotaRead reads the quotas of a region, with their use by running instances:
// https://cloud.google.com/compute/docs/reference/rest/v1/regions/get
const quotaRead = "regions.get"

// regionOf returns the region of a machine: the name of its zone without the last part.
func regionOf(id string) string {
	m, _ := parseMachineName(id)
	return m.zone[:max(strings.LastIndexByte(m.zone, '-'), 0)]
}

// readQuotas returns the exceeded quotas of processors and GPUs in a region. Stopped instances do not use them. Quotas
// of commitments are ignored, because they are a different kind of quota.
func (c *projectAccount) readQuotas(ctx context.Context, region string) ([]string, error) {
	var answer struct {
		Quotas []struct {
			Metric string  `json:"metric"`
			Limit  float64 `json:"limit"`
			Usage  float64 `json:"usage"`
		} `json:"quotas"`
	}
	query := url.Values{"fields": {"quotas(metric,limit,usage)"}}
	if err := c.call(ctx, computeRequest{operation: quotaRead, method: http.MethodGet, path: "/regions/" + region, query: query}, &answer); err != nil {
		return nil, err
	}
	var exceeded []string
	for _, q := range answer.Quotas {
		isOfInstances := strings.HasSuffix(q.Metric, "CPUS") || strings.HasSuffix(q.Metric, "GPUS")
		if isOfInstances && !strings.HasPrefix(q.Metric, "COMMITTED_") && q.Usage > q.Limit && len(q.Metric) <= maxNameBytes {
			exceeded = append(exceeded, q.Metric)
		}
	}
	return exceeded, nil
}
