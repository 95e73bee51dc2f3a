// SPDX-License-Identifier: Apache-2.0

// Package korifihandover hands over objects that Korifi has created to Torpor's controllers, once Korifi's controllers no
// longer run.
package korifihandover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
)

// ErrUpstreamRuns is returned before anything is changed, if Korifi's controllers or webhooks still exist.
var ErrUpstreamRuns = errors.New("parts of Korifi are still active")

// FromKorifi grants Torpor's roles to the subjects of Korifi's roles, except admins, marks Korifi's objects of the
// kinds that both projects handle as Torpor's, and removes Korifi's finalizers from all of Korifi's kinds. It then
// deletes Korifi's AppWorkloads and StatefulSets, because Torpor starts no app while they exist. It may be run again
// after an error. It finds objects by upstream's kinds and labels:
// https://github.com/cloudfoundry/korifi/tree/main/controllers/api/v1alpha1
func FromKorifi(ctx context.Context, e objecteditor.Editor) error {
	if err := requireStopped(ctx, e); err != nil {
		return err
	}
	failed := []error{bindRoles(ctx, e)}
	for _, kind := range handledKinds() {
		failed = append(failed, e.EachObject(ctx, korifiKind(kind), func(obj *metav1.PartialObjectMetadata) error { return takeObject(ctx, e, obj, true) }))
	}
	for _, kind := range unknownKinds() {
		failed = append(failed, e.EachObject(ctx, korifiKind(kind), func(obj *metav1.PartialObjectMetadata) error { return takeObject(ctx, e, obj, false) }))
	}
	if err := errors.Join(failed...); err != nil {
		return err // Do not delete the workloads of an app that could not be handed over.
	}
	return deleteWorkloads(ctx, e)
}

func korifiKind(kind string) schema.GroupVersionKind {
	return korifiv1alpha1.CFAppKind().GroupVersion().WithKind(kind)
}

func handledKinds() []string {
	return []string{"CFOrg", "CFSpace", "CFDomain", "CFRoute", "CFPackage", "CFBuild", "CFProcess", "CFApp", "CFTask", "CFServiceInstance", "CFServiceBinding"}
}

// unknownKinds returns the kinds of Korifi that Torpor does not handle. Their finalizers would block the deletion of
// their namespaces forever, because no controller removes them.
func unknownKinds() []string {
	return []string{"CFServiceOffering", "CFServicePlan", "CFServiceBroker", "CFSecurityGroup", "BuildWorkload", "TaskWorkload", "AppWorkload"}
}

// requireStopped returns an error if Korifi's Deployment has Pods or replicas, or if its webhooks exist. It does not
// check the Lease, which remains for a while after its holder has ended.
func requireStopped(ctx context.Context, e objecteditor.Editor) error {
	upstream := otherwriter.Korifi()
	for _, namespace := range upstream.Namespaces {
		deployment := &appsv1.Deployment{}
		found, err := e.HasObject(ctx, types.NamespacedName{Namespace: namespace, Name: upstream.Deployment}, deployment)
		if err != nil {
			return err
		}
		if found && (deployment.Spec.Replicas == nil || *deployment.Spec.Replicas > 0 || deployment.Status.Replicas > 0) {
			return fmt.Errorf("%w: expected the Deployment %s/%s to have no Pods, found that it has Pods or replicas; run: kubectl -n %[2]s scale deployment %[3]s --replicas=0",
				ErrUpstreamRuns, namespace, upstream.Deployment)
		}
	}
	for _, name := range upstream.Webhooks {
		for _, obj := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
			found, err := e.HasObject(ctx, types.NamespacedName{Name: name}, obj)
			if err != nil {
				return err
			}
			if found {
				return fmt.Errorf("%w: expected no webhook configuration %s, which blocks writes while its server is unavailable; found it; run: "+
					"kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration --ignore-not-found %[2]s", ErrUpstreamRuns, name)
			}
		}
	}
	return nil
}

// takeObject removes Korifi's finalizers from an object. If Korifi has written the object and Torpor handles the kind,
// it annotates the object so that Torpor takes it over.
func takeObject(ctx context.Context, e objecteditor.Editor, obj *metav1.PartialObjectMetadata, isHandled bool) error {
	left := slices.DeleteFunc(slices.Clone(obj.Finalizers), isUpstreamFinalizer)
	owner := otherwriter.FindWriter(otherwriter.Observed{
		Upstream: otherwriter.Korifi(), Fields: obj.ManagedFields, Finalizers: obj.Finalizers,
		IsTakenOver: obj.Annotations[torporv1alpha1.TakeOverAnnotation] == "true",
	})
	fields := map[string]any{}
	var done []string
	if isHandled && owner != "" {
		fields["annotations"] = map[string]string{torporv1alpha1.TakeOverAnnotation: "true"}
		done = append(done, "Torpor manages the object from now on")
	}
	if len(left) < len(obj.Finalizers) {
		fields["finalizers"] = left
		done = append(done, fmt.Sprintf("finalizers of Korifi removed: %d", len(obj.Finalizers)-len(left)))
	}
	if len(done) == 0 {
		return nil
	}
	if e.DryRun {
		e.Print("would take", obj, strings.Join(done, ", "))
		return nil
	}
	if err := e.PatchMetadata(ctx, obj, fields); err != nil {
		return err
	}
	e.Print("took", obj, strings.Join(done, ", "))
	return nil
}

func isUpstreamFinalizer(name string) bool {
	group := korifiv1alpha1.CFAppKind().Group
	// Only the finalizer of packages has a different format.
	return strings.HasSuffix(name, "."+group) || name == group+"/cfPackageController"
}

// deleteWorkloads deletes the owners of Korifi's Pods. For each app, Torpor waits until these Pods have ended, so
// that no worker runs twice.
func deleteWorkloads(ctx context.Context, e objecteditor.Editor) error {
	remove := func(obj *metav1.PartialObjectMetadata) error {
		return e.DeleteObject(ctx, obj, "Torpor starts its own Pods when those of Korifi are gone")
	}
	return errors.Join(
		e.EachObject(ctx, korifiKind("AppWorkload"), remove),
		e.EachObject(ctx, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), remove, client.HasLabels{korifiv1alpha1.AppWorkloadGUIDLabel}),
	)
}

// rolesOf maps ClusterRoles of Korifi to those of Torpor. It omits the role of admins, because Korifi binds this role
// in a namespace and Torpor binds it in the whole cluster. An administrator has to decide about it.
func rolesOf() map[string]string {
	const prefix = "korifi-controllers-"
	return map[string]string{
		prefix + "organization-manager": "torpor-org-user", prefix + "organization-user": "torpor-org-user",
		prefix + "space-developer": "torpor-space-developer",
		prefix + "space-manager":   "torpor-space-auditor", prefix + "space-auditor": "torpor-space-auditor",
	}
}

// bindRoles creates a RoleBinding to Torpor's role for each RoleBinding to a role in rolesOf. It keeps the existing
// RoleBindings, because they have no effect once Korifi's ClusterRoles are uninstalled.
func bindRoles(ctx context.Context, e objecteditor.Editor) error {
	token, failed := "", []error(nil)
	for {
		var bindings rbacv1.RoleBindingList
		if err := e.Client.List(ctx, &bindings, client.Limit(objecteditor.PageSize), client.Continue(token)); err != nil {
			return errors.Join(append(failed, fmt.Errorf("list RoleBindings: %w", err))...)
		}
		for i := range bindings.Items {
			failed = append(failed, bindRole(ctx, e, &bindings.Items[i]))
		}
		if token = bindings.Continue; token == "" {
			return errors.Join(failed...)
		}
	}
}

func bindRole(ctx context.Context, e objecteditor.Editor, theirs *rbacv1.RoleBinding) error {
	if theirs.RoleRef.Kind != "ClusterRole" || !theirs.DeletionTimestamp.IsZero() {
		return nil
	}
	if theirs.RoleRef.Name == "korifi-controllers-admin" {
		e.Print("left", theirs, "an admin of Torpor has the ClusterRole torpor-cf-admin in the whole cluster; bind it yourself")
		return nil
	}
	role, known := rolesOf()[theirs.RoleRef.Name]
	if !known {
		return nil
	}
	own := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: theirs.Namespace, Name: "torpor-" + theirs.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: theirs.Subjects,
	}
	var present rbacv1.RoleBinding
	found, err := e.HasObject(ctx, client.ObjectKeyFromObject(own), &present)
	switch {
	case err != nil:
		return err
	case found:
		return requireGives(&present, own, theirs.Name)
	}
	if e.DryRun {
		e.Print("would create", own, role+" for the subjects of the RoleBinding "+theirs.Name)
		return nil
	}
	if err := e.Client.Create(ctx, own); err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the RoleBinding %s/%s: %w", own.Namespace, own.Name, err)
	}
	e.Print("created", own, role+" for the subjects of the RoleBinding "+theirs.Name)
	return nil
}

// requireGives returns an error if an existing RoleBinding lacks the role or a subject of Torpor's RoleBinding of the
// same name. The existing RoleBinding is not changed, because its author is unknown.
func requireGives(present, own *rbacv1.RoleBinding, of string) error {
	const remedy = "correct or delete the RoleBinding, and run the command again"
	if present.RoleRef != own.RoleRef {
		return fmt.Errorf("the RoleBinding %s/%s: expected %s %s, found %s %s; %s",
			own.Namespace, own.Name, own.RoleRef.Kind, own.RoleRef.Name, present.RoleRef.Kind, present.RoleRef.Name, remedy)
	}
	for _, subject := range own.Subjects {
		if !slices.Contains(present.Subjects, subject) {
			return fmt.Errorf("the RoleBinding %s/%s: expected the subjects of the RoleBinding %s, found that %s %s is missing; %s", own.Namespace, own.Name, of, subject.Kind, subject.Name, remedy)
		}
	}
	return nil
}
