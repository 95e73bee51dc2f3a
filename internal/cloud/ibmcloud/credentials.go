// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// apiKeyKey is the key of the credentials Secret that Hive defines.
	apiKeyKey = "ibmcloud_api_key"
	// maxAPIKeyBytes is far more than the length of IBM Cloud's keys.
	maxAPIKeyBytes = 512
	// maxRegionBytes is far more than the length of any region's name.
	maxRegionBytes = 32
)

// readCredentials reads the API key. Errors do not contain any part of the key.
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

// checkRegion refuses invalid regions, because the region becomes part of the host that receives the token.
func checkRegion(region string) error {
	if region == "" || len(region) > maxRegionBytes || strings.Trim(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(region, "-") {
		return actuator.Errorf(actuator.Other, "spec.platform.ibmcloud.region: expected a region such as eu-de, found %.40q: correct it", region)
	}
	return nil
}
