// SPDX-License-Identifier: Apache-2.0

package statuses

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// List returns the objects by what they are in.
func List() (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for name, text := range texts() {
		obj := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte("metadata: {namespace: ns, name: x, generation: 2, annotations: {torpor.dev/reason: why}}\n" + text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if err := obj.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all[name] = obj
	}
	return all, nil
}

func texts() map[string]string {
	const (
		cluster  = "apiVersion: hive.openshift.io/v1\nkind: ClusterDeployment\n"
		database = "apiVersion: moco.cybozu.com/v1beta2\nkind: MySQLCluster\nspec: {}\n"
		app      = "apiVersion: korifi.cloudfoundry.org/v1alpha1\nkind: CFApp\n"
		slumber  = "apiVersion: torpor.dev/v1alpha1\nkind: Slumber\nspec: {}\n"
	)
	return map[string]string{
		"a cluster that is new":          cluster + "spec: {}\n",
		"a cluster that runs":            cluster + "spec: {powerState: Running}\nstatus: {conditions: [{type: Ready, status: 'True', reason: Running, message: runs}, {type: Hibernating, status: 'False', reason: ResumingOrRunning}]}\n",
		"a cluster that stops":           cluster + "spec: {powerState: Hibernating}\nstatus: {conditions: [{type: Ready, status: 'False', reason: StoppingOrHibernating, message: stops}, {type: Hibernating, status: 'True', reason: Stopping}]}\n",
		"a cluster that sleeps":          cluster + "spec: {powerState: Hibernating}\nstatus: {conditions: [{type: Ready, status: 'False', reason: Hibernating, message: sleeps}, {type: Hibernating, status: 'True', reason: Hibernating, message: sleeps}]}\n",
		"a cluster that is stuck":        cluster + "spec: {powerState: Hibernating}\nstatus: {conditions: [{type: Ready, status: 'False', reason: FailedToStop}, {type: Hibernating, status: 'True', reason: FailedToStop}, {type: Stalled, status: 'True', reason: FailedToStop, message: i-1 does not stop}]}\n",
		"a database that works":          database + "status: {conditions: [{type: Healthy, status: 'True', message: works}, {type: Available, status: 'True'}, {type: ClusteringActive, status: 'True'}, {type: ReconciliationActive, status: 'True'}]}\n",
		"a database that is down":        database + "status: {conditions: [{type: Healthy, status: 'False'}, {type: Available, status: 'False', message: no primary}, {type: ClusteringActive, status: 'True'}, {type: ReconciliationActive, status: 'True'}]}\n",
		"a database on its own":          database + "status: {conditions: [{type: Healthy, status: Unknown}, {type: Available, status: Unknown}, {type: ClusteringActive, status: 'False', message: stopped}, {type: ReconciliationActive, status: 'True'}]}\n",
		"an app that runs":               app + "spec: {desiredState: STARTED}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'True', reason: Running, message: runs}]}\n",
		"an app that is stopped":         app + "spec: {desiredState: STOPPED}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'True', reason: Stopped, message: stopped}]}\n",
		"an app that starts":             app + "spec: {desiredState: STARTED}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'False', reason: Starting, message: starts}]}\n",
		"an app of which more is asked":  app + "spec: {desiredState: STARTED}\nstatus: {observedGeneration: 1, conditions: [{type: Ready, status: 'True', reason: Running}]}\n",
		"a schedule that is asleep":      slumber + "status: {observedGeneration: 2, conditions: [{type: Ready, status: 'True', reason: Asleep, message: asleep}, {type: Stalled, status: 'False'}]}\n",
		"a schedule that needs somebody": slumber + "status: {observedGeneration: 2, conditions: [{type: Ready, status: 'False'}, {type: Stalled, status: 'True', message: a cluster does not wake}]}\n",
	}
}
