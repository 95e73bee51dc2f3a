// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestStatusLimitsMatchTheCode compares the maximum lengths of lists in status with the constants by which the code
// limits them. If the code kept more entries than the schema allows, the API server would reject each later status.
func TestStatusLimitsMatchTheCode(t *testing.T) {
	// constants holds the constant that limits a list, by the kind and the path of the list.
	constants := map[string]string{
		"ClusterDeployment status.hibernation.brokenOperators":         "internal/cluster/hibernation maxBrokenOperators",
		"ClusterDeployment status.hibernation.machineGroups":           "internal/cluster/hibernation maxGroups",
		"ClusterDeployment status.hibernation.spotMachines":            "internal/cluster/hibernation maxSpotMachines",
		"ClusterDeployment status.hibernationCheck.findings[].objects": "internal/stop/preflight maxObjects",
		"ClusterDeployment status.savings.weeks":                       "internal/stop/savings MaxWeeks",
		"ClusterDeployment status.scheduledStops[].stops":              "internal/stop/record MaxScheduled",
		"ClusterDeployment status.stops":                               "internal/stop/record MaxRecords",
		"MachinePool status.machineSets":                               "internal/cluster/machinepool MaxMachineSets",
		"ClusterSync status.selectorSyncSets[].resourcesToDelete":      "internal/cluster/syncset maxRecorded",
		"ClusterSync status.syncSets[].resourcesToDelete":              "internal/cluster/syncset maxRecorded",
		"CFApp status.restarts":                                        "internal/cf/revision MaxRestarts",
		"CFApp status.savings.weeks":                                   "internal/stop/savings MaxWeeks",
		"CFApp status.scheduledStops[].stops":                          "internal/stop/record MaxScheduled",
		"CFApp status.stops":                                           "internal/stop/record MaxRecords",
		"MySQLCluster status.clusteringStops":                          "internal/stop/record MaxRecords",
		"MySQLCluster status.instanceStops":                            "internal/stop/record MaxRecords",
		"MySQLCluster status.reconciliationStops":                      "internal/stop/record MaxRecords",
		"MySQLCluster status.scheduledStops[].stops":                   "internal/stop/record MaxScheduled",
		"ClusterSlumber status.nextTransitions":                        "internal/switches/slumber MaxTransitions",
		"Slumber status.nextTransitions":                               "internal/switches/slumber MaxTransitions",
	}
	// others holds what limits a list that no constant limits.
	others := map[string]string{
		"ClusterDeployment status.hibernation.machineGroups[].suspended": "the processes that an actuator can suspend",
		"ClusterDeployment status.hibernationCheck.findings":             "the codes of findings",
		"ClusterDeployment status.hibernationCheck.unread":               "the lists of a survey",
		"ClusterDeployment status.scheduledStops":                        "the Slumber that exceeds the limit reports an error",
		"CFApp status.scheduledStops":                                    "the Slumber that exceeds the limit reports an error",
		"MySQLCluster status.scheduledStops":                             "the Slumber that exceeds the limit reports an error",
		"ClusterSync status.selectorSyncSets":                            "the applied sets, and deleted sets with objects in the cluster",
		"ClusterSync status.syncSets":                                    "the applied sets, and deleted sets with objects in the cluster",
		"ClusterSlumber status.waves":                                    "spec.waves",
		"Slumber status.waves":                                           "spec.waves",
	}
	values := readIntegerConstants(t)
	for list, limit := range readStatusLimits(t) {
		constant, isLimited := constants[list]
		_, isOther := others[list]
		switch {
		case !isLimited && !isOther:
			t.Errorf("%s has at most %d items: expected a row with the constant that limits the list in the code", list, limit)
		case isLimited && values[constant] != limit:
			t.Errorf("%s has at most %d items, but %s is %d", list, limit, constant, values[constant])
		}
		delete(constants, list)
		delete(others, list)
	}
	for _, left := range []map[string]string{constants, others} {
		for list := range left {
			t.Errorf("%s: expected a list with a maximum length in config/crd, found none; remove its row", list)
		}
	}
}

// readIntegerConstants returns the values of the integer constants by their folder and name.
func readIntegerConstants(t *testing.T) map[string]int64 {
	t.Helper()
	values := map[string]int64{}
	for _, source := range handwrittenSources(t) {
		ast.Inspect(source.file, func(n ast.Node) bool {
			spec, isValue := n.(*ast.ValueSpec)
			if !isValue || source.isTest() {
				return true
			}
			for i := range spec.Values {
				literal, isLiteral := spec.Values[i].(*ast.BasicLit)
				if !isLiteral {
					continue
				}
				if value, err := strconv.ParseInt(literal.Value, 0, 64); err == nil {
					values[source.folder()+" "+spec.Names[i].Name] = value
				}
			}
			return true
		})
	}
	return values
}

// readStatusLimits returns the maximum lengths of all lists in status by the kind and the path of the list.
func readStatusLimits(t *testing.T) map[string]int64 {
	t.Helper()
	limits := map[string]int64{}
	var walk func(path string, schema apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if schema.MaxItems != nil {
			limits[path] = *schema.MaxItems
		}
		for name, property := range schema.Properties {
			walk(path+"."+name, property)
		}
		if schema.Items != nil && schema.Items.Schema != nil {
			walk(path+"[]", *schema.Items.Schema)
		}
	}
	for _, crd := range readDefinitions(t) {
		for _, version := range crd.Spec.Versions {
			walk(crd.Spec.Names.Kind+" status", version.Schema.OpenAPIV3Schema.Properties["status"])
		}
	}
	return limits
}
