// SPDX-License-Identifier: Apache-2.0

//go:build linux

package podcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// ClassName is the default storage class.
	ClassName = "local"

	provisioner    = "localhost/folders"
	volumesPeriod  = 200 * time.Millisecond
	volumesTimeout = 10 * time.Second
	// selectedNode is the annotation with which the scheduler requests the volume of a claim from a provisioner.
	selectedNode = "volume.kubernetes.io/selected-node"
	// provisionedBy is the annotation with the provisioner that created a volume and has to delete it.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

// volumeProvisioner creates a folder on the node for every claim, and removes it when the claim is deleted.
type volumeProvisioner struct {
	client kubernetes.Interface
	dir    string
}

func (v volumeProvisioner) createStorageClass(ctx context.Context) error {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: ClassName, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       provisioner,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	_, err := v.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("create storage class: %w", err)
	}
	return nil
}

// runPasses provisions and deletes volumes repeatedly until ctx ends. After an error it retries, and prints the same
// error only once.
func (v volumeProvisioner) runPasses(ctx context.Context, out io.Writer) {
	tick := time.NewTicker(volumesPeriod)
	defer tick.Stop()
	printed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := v.provisionPending(ctx); err != nil && ctx.Err() == nil && err.Error() != printed {
			printed = err.Error()
			fmt.Fprintln(out, "volumes:", err)
		}
	}
}

func (v volumeProvisioner) provisionPending(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, volumesTimeout)
	defer cancel()
	claims, err := v.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	var errs []error
	for i := range claims.Items {
		if claim := &claims.Items[i]; awaitsVolume(claim) {
			errs = append(errs, v.provisionVolume(ctx, claim))
		}
	}
	all, err := v.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list volumes: %w", err))...)
	}
	for i := range all.Items {
		if volume := &all.Items[i]; volume.Annotations[provisionedBy] == provisioner && volume.Status.Phase == corev1.VolumeReleased {
			errs = append(errs, v.deleteVolume(ctx, volume))
		}
	}
	return errors.Join(errs...)
}

func awaitsVolume(claim *corev1.PersistentVolumeClaim) bool {
	class := claim.Spec.StorageClassName
	return claim.Spec.VolumeName == "" && class != nil && *class == ClassName && claim.Annotations[selectedNode] != ""
}

func (v volumeProvisioner) provisionVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	folder := filepath.Join(v.dir, name)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("create volume: %w", err)
	}
	if err := os.Chmod(folder, 0o777); err != nil { // The pod may run as any user.
		return fmt.Errorf("open volume: %w", err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      claim.Spec.Resources.Requests,
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              ClassName,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity:                  nodeAffinity(claim.Annotations[selectedNode]),
		},
	}
	_, err := v.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func nodeAffinity(node string) *corev1.VolumeNodeAffinity {
	here := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
	}}
}

func (v volumeProvisioner) deleteVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	if err := os.RemoveAll(filepath.Join(v.dir, volume.Name)); err != nil {
		return fmt.Errorf("remove volume: %w", err)
	}
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if err != nil && !k8serrors.IsNotFound(err) {
		return fmt.Errorf("delete volume %s: %w", volume.Name, err)
	}
	return nil
}
