// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// apiKeyKey is Hive's key of the credentials Secret.
	apiKeyKey = "ibmcloud_api_key"
	// maxAPIKeyBytes is far more than IBM Cloud's keys have.
	maxAPIKeyBytes = 512
	// maxRegionBytes is more than the names of regions have.
	maxRegionBytes = 32
)

// readCredentials reads the API key. No error holds a part of it.
func readCredentials(secret map[string][]byte) (string, error) {
	key := strings.TrimSpace(string(secret[apiKeyKey]))
	switch {
	case key == "":
		return "", actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it", apiKeyKey)
	case len(key) > maxAPIKeyBytes:
		return "", actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret is longer than an API key: correct it", apiKeyKey)
	default:
		return key, nil
	}
}

// checkRegion refuses what is no region: it becomes a part of the host that gets the token.
func checkRegion(region string) error {
	if region == "" || len(region) > maxRegionBytes || strings.Trim(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(region, "-") {
		return actuator.Errorf(actuator.Other, "spec.platform.ibmcloud.region: expected a region such as eu-de, found %.40q: correct it", region)
	}
	return nil
}
