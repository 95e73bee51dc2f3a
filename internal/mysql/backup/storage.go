// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

const (
	// volumeFolder is the mount path of a volume with backups.
	volumeFolder = "/backup"
	s3           = mocov1beta2.BackendS3
	volumeName   = "torpor-backup"
)

var errNoStorage = errors.New("jobConfig: expected bucketConfig or workVolume as the destination of the backups, found neither; set one of them")

type backupStorage struct {
	// flags are the program's flags for the bucket or the folder.
	flags []string
	// volume contains the backups if they are not stored in a bucket.
	volume *corev1.VolumeSource
}

// parseStorage returns the storage of a policy. If a bucket is set, workVolume is ignored, because all data is streamed
// to the bucket.
func parseStorage(job mocov1beta2.JobConfig) (backupStorage, error) {
	if b := job.BucketConfig; b != nil {
		return parseBucket(*b)
	}
	if job.WorkVolume == nil {
		return backupStorage{}, errNoStorage
	}
	var volume corev1.VolumeSource
	if err := decodeKept(*job.WorkVolume, &volume, "workVolume"); err != nil {
		return backupStorage{}, err
	}
	if volume.EmptyDir != nil || volume.Ephemeral != nil {
		return backupStorage{}, errors.New("jobConfig.workVolume: expected a volume that outlives the Pod, because it stores the backups if bucketConfig is not set, " +
			"found an emptyDir or ephemeral volume; use a persistentVolumeClaim, or set bucketConfig")
	}
	return backupStorage{flags: []string{"--folder=" + volumeFolder}, volume: &volume}, nil
}

func parseBucket(b mocov1beta2.BucketConfig) (backupStorage, error) {
	if b.BackendType != "" && b.BackendType != s3 {
		return backupStorage{}, fmt.Errorf("jobConfig.bucketConfig.backendType: expected s3, found %s, which Torpor does not support; use a bucket with an S3-compatible API", b.BackendType)
	}
	s := backupStorage{flags: []string{"--bucket=" + b.BucketName}}
	for _, f := range []struct{ name, value string }{
		{"region", b.Region}, {"endpoint", b.EndpointURL}, {"ca-cert", b.CACert}, {"sse", b.ServerSideEncryption}, {"sse-kms-key-id", b.KMSKeyID},
	} {
		if f.value != "" {
			s.flags = append(s.flags, "--"+f.name+"="+f.value)
		}
	}
	if b.UsePathStyle {
		s.flags = append(s.flags, "--path-style")
	}
	return s, nil
}

// decodeKept decodes a Kubernetes object that a MySQLCluster or BackupPolicy stores as unparsed JSON.
func decodeKept[T any](kept mocov1beta2.Kept, into *T, field string) error {
	if err := json.Unmarshal(kept.Raw, into); err != nil {
		return fmt.Errorf("jobConfig.%s: expected the same format as in a Pod: %w", field, err)
	}
	return nil
}

func decodeKeptList[T any](kept []mocov1beta2.Kept, field string) ([]T, error) {
	var all []T
	for i, k := range kept {
		var one T
		if err := decodeKept(k, &one, fmt.Sprintf("%s[%d]", field, i)); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

const (
	// timeFormat is the format of the time in the names of backups, in UTC, so names sort by time. MOCO uses the same
	// format.
	timeFormat = "20060102-150405"
	recordFile = "backup.json"
	// mocoDumpFile and mocoBinlogsFile are the files of a backup that MOCO made. The names of MOCO's folders have the
	// same format as those of Torpor.
	mocoDumpFile    = "dump.tar"
	mocoBinlogsFile = "binlog.tar.zst"
)

// ObjectKeys holds the keys of the objects of one backup.
type ObjectKeys struct {
	// Dump is compressed SQL, and Accounts contains the users and their grants. Record exists only once the other two
	// are complete. In a backup made by MOCO, Dump and Record are the same tar archive, and Accounts is empty.
	Dump, Accounts, Record string
	// Moco is set if MOCO made the backup.
	Moco *MocoBackup
}

// MocoBackup describes a backup that MOCO made.
type MocoBackup struct {
	// Time is the time at which the backup began.
	Time time.Time
	// Binlogs is the key of the binary logs up to the next backup. It is empty if none exist.
	Binlogs string
	// Next is the time of MOCO's next backup, at which the binary logs end. It is zero if there is no later backup.
	Next time.Time
}

// ObjectPrefix returns the prefix of the keys of all backups of a cluster.
func ObjectPrefix(namespace, name string) string { return "moco/" + namespace + "/" + name + "/" }

// ObjectKeysAt returns the keys of the backup made at a given time. The record is written last.
func ObjectKeysAt(namespace, name string, at time.Time) ObjectKeys {
	folder := ObjectPrefix(namespace, name) + at.UTC().Format(timeFormat)
	return ObjectKeys{Dump: folder + "/dump.sql.zst", Accounts: folder + "/accounts.json", Record: path.Join(folder, recordFile)}
}

// ChooseBackup returns the newest complete backup that is not after the restore point. This includes backups made by
// MOCO. keys are all keys under the cluster's prefix, in any order.
func ChooseBackup(keys []string, namespace, name string, point time.Time) (ObjectKeys, error) {
	whole, mocos := wholeBackups(keys, namespace, name), backupsWith(mocoDumpFile, keys, namespace, name)
	own, isOwn := newestUntil(whole, point)
	moco, isMoco := newestUntil(mocos, point)
	switch {
	case isMoco && (!isOwn || moco.After(own)):
		return mocoKeysAt(keys, namespace, name, moco, mocos), nil
	case isOwn:
		return ObjectKeysAt(namespace, name, own), nil
	}
	found := "none at all; check the bucket, and spec.restore.sourceNamespace and sourceName"
	if all := slices.SortedFunc(slices.Values(slices.Concat(whole, mocos)), time.Time.Compare); len(all) > 0 {
		found = fmt.Sprintf("only later backups (%d, the first at %s); choose a later restore point", len(all), all[0].Format(time.RFC3339))
	}
	return ObjectKeys{}, fmt.Errorf("expected a backup of %s/%s that is not after %s, found %s", namespace, name, point.UTC().Format(time.RFC3339), found)
}

// FindOwnBackup returns the newest complete backup that Torpor made until a given time. The second result is false if
// none exists.
func FindOwnBackup(keys []string, namespace, name string, until time.Time) (ObjectKeys, bool) {
	at, found := newestUntil(wholeBackups(keys, namespace, name), until)
	return ObjectKeysAt(namespace, name, at), found
}

// newestUntil returns the last of the sorted times that is not after a given time.
func newestUntil(sorted []time.Time, until time.Time) (time.Time, bool) {
	for _, at := range slices.Backward(sorted) {
		if !at.After(until) {
			return at, true
		}
	}
	return time.Time{}, false
}

// mocoKeysAt returns the keys of the backup that MOCO made at a given time. all holds the times of all backups by MOCO,
// oldest first.
func mocoKeysAt(keys []string, namespace, name string, at time.Time, all []time.Time) ObjectKeys {
	folder := ObjectPrefix(namespace, name) + at.UTC().Format(timeFormat)
	moco := &MocoBackup{Time: at}
	if logs := path.Join(folder, mocoBinlogsFile); slices.Contains(keys, logs) {
		moco.Binlogs = logs
	}
	if next := slices.IndexFunc(all, at.Before); next >= 0 {
		moco.Next = all[next]
	}
	dump := path.Join(folder, mocoDumpFile)
	return ObjectKeys{Dump: dump, Record: dump, Moco: moco}
}

// acceptedGap is the maximum time between the restored data and the restore point without a warning.
const acceptedGap = 5 * time.Minute

// MissingBeforePoint returns the time between the restored data and the restore point, or 0 if it is at most
// acceptedGap. A restore point in the future requests the newest data, and is treated as the start of the restore.
func MissingBeforePoint(restored, point, began time.Time) time.Duration {
	if point.After(began) {
		point = began
	}
	if missing := point.Sub(restored); missing > acceptedGap {
		return missing.Round(time.Second)
	}
	return 0
}

// maxMessage is the maximum size of a termination message that the kubelet stores, in bytes.
const maxMessage = 4096

// FormatResult returns the termination message of a container that made a backup. If they do not fit, the UUIDs are
// omitted, and then the GTID set and the warnings are replaced with a warning. The record in the bucket contains them.
// It does not contain the late warnings, so those are kept.
func FormatResult(status mocov1beta2.BackupStatus, late ...string) (string, error) {
	recorded := len(status.Warnings)
	status.Warnings = slices.Concat(status.Warnings, late)
	for _, shrink := range []func(){
		func() {},
		func() { status.UUIDSet = nil },
		func() {
			status.GTIDSet = ""
			status.Warnings = slices.Concat([]string{fmt.Sprintf("the GTID set and %d warnings are too long for the status; read them in %s in the bucket", recorded, recordFile)}, late)
		},
	} {
		shrink()
		text, err := json.Marshal(status)
		if err != nil {
			return "", fmt.Errorf("encode the result: %w", err)
		}
		if len(text) <= maxMessage {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("expected a result of at most %d bytes, found more even without the GTID set", maxMessage)
}

// ParseResult parses the output of FormatResult.
func ParseResult(text string) (mocov1beta2.BackupStatus, error) {
	var status mocov1beta2.BackupStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return status, fmt.Errorf("expected the result of a backup as JSON, found %d bytes that cannot be decoded: %w", len(text), err)
	}
	if status.Time == nil {
		return status, fmt.Errorf("expected the result of a backup, found JSON without the field time")
	}
	return status, nil
}

// RestoreResult is the outcome of a restore.
type RestoreResult struct {
	mocov1beta2.BackupStatus

	// LeftOut is the number of warnings, at the beginning of the list, that describe omitted parts of the backup.
	LeftOut int `json:"leftOut,omitempty"`
}

// FormatRestoreResult returns the termination message of a container that restored a backup. Warnings that do not fit
// are replaced with their number. The container's log contains all warnings.
func FormatRestoreResult(result RestoreResult) (string, error) {
	all, leftOut := result.Warnings, result.LeftOut
	for named := len(all); named >= 0; named-- {
		result.Warnings, result.LeftOut = all[:named:named], min(leftOut, named)
		if hidden := len(all) - named; hidden > 0 {
			result.UUIDSet, result.GTIDSet = nil, ""
			result.Warnings = append(result.Warnings, fmt.Sprintf("%d more warnings are in the log of the Job", hidden))
			// The hidden warnings begin with omitted parts, so the added warning also counts as an omitted part.
			if leftOut > named {
				result.LeftOut = named + 1
			}
		}
		text, err := json.Marshal(result)
		if err != nil {
			return "", fmt.Errorf("encode the result: %w", err)
		}
		if len(text) <= maxMessage {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("expected a result of at most %d bytes, found more even without warnings", maxMessage)
}

// ParseRestoreResult parses the output of FormatRestoreResult.
func ParseRestoreResult(text string) (RestoreResult, error) {
	status, err := ParseResult(text)
	result := RestoreResult{BackupStatus: status}
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return result, fmt.Errorf("expected the result of a restore as JSON, found %d bytes that cannot be decoded: %w", len(text), err)
	}
	result.LeftOut = max(0, min(result.LeftOut, len(result.Warnings)))
	return result, nil
}

// CronJobName returns the name of a cluster's CronJob.
func CronJobName(cluster string) string { return "moco-backup-" + cluster }

// RestoreJobName returns the name of the Job that restores a cluster.
func RestoreJobName(cluster string) string { return "moco-restore-" + cluster }

// ShipperName returns the name of the Deployment that ships a cluster's binary logs to the bucket.
func ShipperName(cluster string) string { return "moco-binlog-" + cluster }

// BuildCronJob returns the CronJob that backs up a cluster. image is Torpor's own image.
func BuildCronJob(cluster *mocov1beta2.MySQLCluster, policy *mocov1beta2.BackupPolicy, image string) (*batchv1.CronJob, error) {
	args := []string{"backup", "--cluster=" + cluster.Namespace + "/" + cluster.Name, "--result=" + messageFile}
	if lag := cluster.Spec.MaxDelaySeconds; lag != nil {
		args = append(args, "--max-lag="+(time.Duration(*lag)*time.Second).String())
	}
	if days := policy.Spec.RetentionDays; days != nil {
		args = append(args, "--retention="+(time.Duration(*days)*day).String())
	}
	if cluster.Spec.SourceSecretName() != "" {
		args = append(args, "--copy")
	}
	args = append(args, hostFlags(cluster)...)
	pod, err := buildPodTemplate(cluster, policy.Spec.JobConfig, image, programRun{kind: BackupKind, args: args, key: mysqlusers.PasswordKeyOf(mysqlusers.BackupUser)})
	if err != nil {
		return nil, fmt.Errorf("BackupPolicy %s: spec.%w", policy.Name, err)
	}
	spec, labels := policy.Spec, JobLabels(cluster.Name, BackupKind)
	return &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"},
		ObjectMeta: childMeta(cluster, CronJobName(cluster.Name), labels),
		Spec: batchv1.CronJobSpec{
			Schedule: string(spec.Schedule), TimeZone: spec.TimeZone, Suspend: new(cluster.Spec.Offline),
			StartingDeadlineSeconds: spec.StartingDeadlineSeconds, ConcurrencyPolicy: batchv1.ConcurrencyPolicy(spec.ConcurrencyPolicy),
			SuccessfulJobsHistoryLimit: atLeastOne(spec.SuccessfulJobsHistoryLimit), FailedJobsHistoryLimit: spec.FailedJobsHistoryLimit,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: batchv1.JobSpec{
					ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds, BackoffLimit: spec.BackoffLimit, Template: pod,
				},
			},
		},
	}, nil
}

const day = 24 * time.Hour

func hostFlags(cluster *mocov1beta2.MySQLCluster) []string {
	var flags []string
	for i := range cluster.InstanceCount() {
		flags = append(flags, "--host="+cluster.InstanceHost(i))
	}
	return flags
}

// errFolderShipped rejects point-in-time recovery with backups in a volume, because the Pods of the CronJob and of the
// Deployment would have to share the volume.
var errFolderShipped = errors.New("pointInTimeRecovery: expected jobConfig.bucketConfig, found backups in a volume; add a bucketConfig")

// BuildShipper returns the Deployment whose Pod ships binary logs to the bucket. It is safe if two Pods run at the same
// time, so a new Pod does not have to wait for the Pod on a lost node.
func BuildShipper(cluster *mocov1beta2.MySQLCluster, policy *mocov1beta2.BackupPolicy, image string) (*appsv1.Deployment, error) {
	if policy.Spec.JobConfig.BucketConfig == nil {
		return nil, fmt.Errorf("BackupPolicy %s: spec.%w", policy.Name, errFolderShipped)
	}
	args := append([]string{
		"ship-binlogs", "--cluster=" + cluster.Namespace + "/" + cluster.Name, "--interval=" + policy.Spec.ShippingInterval().String(),
		"--spool=" + spoolFolder, fmt.Sprintf("--address=:%d", ShipperPort),
	}, hostFlags(cluster)...)
	job := policy.Spec.JobConfig // The resources of a dump are not suitable for a Pod that always runs.
	job.CPU, job.MaxCPU, job.Memory, job.MaxMemory = new(resource.MustParse("50m")), nil, new(resource.MustParse("128Mi")), nil
	pod, err := buildPodTemplate(cluster, job, image, programRun{kind: ShipperKind, args: args, key: mysqlusers.PasswordKeyOf(mysqlusers.BackupUser)})
	if err != nil {
		return nil, fmt.Errorf("BackupPolicy %s: spec.%w", policy.Name, err)
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Volumes = append(pod.Spec.Volumes, emptyDirVolume(spoolVolume, corev1.StorageMediumDefault, spoolSize))
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: spoolVolume, MountPath: spoolFolder})
	main.Ports = []corev1.ContainerPort{{Name: "status", ContainerPort: ShipperPort, Protocol: corev1.ProtocolTCP}}
	main.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: ReadyPath, Port: intstr.FromInt32(ShipperPort)}},
		PeriodSeconds: 10, TimeoutSeconds: 5,
	}
	labels := JobLabels(cluster.Name, ShipperKind)
	replicas := int32(1)
	if cluster.Spec.Offline {
		replicas = 0
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: childMeta(cluster, ShipperName(cluster.Name), labels),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
	}, nil
}

// atLeastOne raises a limit of 0 to 1. The last successful Job is kept, because its Pod contains the result.
func atLeastOne(limit *int32) *int32 {
	if limit == nil {
		return nil
	}
	return new(max(*limit, 1))
}

// BuildRestoreJob returns the Job that loads a backup into instance 0 of a cluster, according to spec.restore. image is
// Torpor's own image.
func BuildRestoreJob(cluster *mocov1beta2.MySQLCluster, image string) (*batchv1.Job, error) {
	r := cluster.Spec.Restore
	args := []string{
		"restore", "--result=" + messageFile, "--host=" + cluster.InstanceHost(0),
		"--source=" + r.SourceNamespace + "/" + r.SourceName, "--restore-point=" + r.RestorePoint.UTC().Format(time.RFC3339),
		"--wait=" + cluster.StartupWait().String(),
	}
	if r.Schema != "" {
		args = append(args, "--schema="+r.Schema)
	}
	if r.OnError == mocov1beta2.FailOnRestoreError {
		args = append(args, "--fail-on-error")
	}
	users, err := r.Users.Names()
	if err != nil {
		return nil, fmt.Errorf("spec.restore.%w", err)
	}
	for _, name := range users {
		args = append(args, "--user="+name)
	}
	pod, err := buildPodTemplate(cluster, r.JobConfig, image, programRun{kind: RestoreKind, args: args, key: mysqlusers.PasswordKeyOf(mysqlusers.AdminUser)})
	if err != nil {
		return nil, fmt.Errorf("spec.restore: %w", err)
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: childMeta(cluster, RestoreJobName(cluster.Name), JobLabels(cluster.Name, RestoreKind)),
		Spec: batchv1.JobSpec{Template: pod, PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: new(ContainerName), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{RefusedExitCode},
			},
		}}}},
	}, nil
}

// RefusedExitCode is the exit code of a restore that would fail again if it were retried.
const RefusedExitCode = 4

// childMeta returns metadata with the cluster as the owner, so the object is deleted together with the cluster.
func childMeta(cluster *mocov1beta2.MySQLCluster, name string, labels map[string]string) metav1.ObjectMeta {
	kind := mocov1beta2.MySQLClusterKind()
	return metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: cluster.Name, UID: cluster.UID, Controller: new(true),
		}},
	}
}

// ContainerName is the name of the container in the Jobs' Pods whose termination message contains the result.
const ContainerName = "torpor"

// PasswordVariable is the environment variable that contains the password of the MySQL user.
const PasswordVariable = "TORPOR_MYSQL_PASSWORD"

// AuthoritiesVariable is the environment variable that contains the CA certificates for verifying the servers.
const AuthoritiesVariable = "TORPOR_MYSQL_AUTHORITIES"

const (
	// programFolder must not be /torpor, the program's path in Torpor's own image. A folder cannot be mounted over a
	// file.
	programFolder = "/torpor-program"
	programPath   = programFolder + "/torpor"
	// scratchFolder is in memory, because it contains the clients' option file with the password.
	scratchFolder = "/tmp"
	// runAsUser is the user ID of upstream's MySQL Pods.
	runAsUser     = 10000
	programVolume = "torpor-program"
	scratchVolume = "torpor-scratch"
	messageFile   = "/dev/termination-log"
	copyContainer = "copy-torpor"
	programSize   = "256Mi"
	scratchSize   = "16Mi"
	// spoolFolder contains binary logs until they are uploaded. If it exceeds spoolSize, the Pod is evicted and
	// replaced.
	spoolFolder = "/spool"
	spoolVolume = "torpor-spool"
	spoolSize   = "16Gi"
	// ShipperPort is the port on which the shipping Pod serves its status.
	ShipperPort = 8081
)

// errNoImage is an error that only an administrator of the manager can correct.
var errNoImage = errors.New("expected the name of Torpor's own image, found none: start the manager with --image or TORPOR_IMAGE")

type programRun struct {
	// kind is the value of the Pods' label app.kubernetes.io/name. It is not mysql, so the cluster's Services do not
	// select them.
	kind string
	// args holds the arguments, beginning with the subcommand.
	args []string
	// key is the key of the password in the cluster's Secret.
	key string
}

// These are the values of the label app.kubernetes.io/name for backup Jobs, restore Jobs and the Deployment that ships
// binary logs, and for their Pods.
const (
	BackupKind  = "mysql-backup"
	RestoreKind = "mysql-restore"
	ShipperKind = "mysql-binlog"
)

// JobLabels returns the labels of a workload for backups or restores, and of its Pods.
func JobLabels(cluster, kind string) map[string]string {
	return map[string]string{mocov1beta2.NameLabel: kind, mocov1beta2.InstanceLabel: cluster, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue}
}

// JobKinds returns the values of the label app.kubernetes.io/name of all workloads for backups and restores.
func JobKinds() []string { return []string{BackupKind, RestoreKind, ShipperKind} }

// buildPodTemplate builds the Pod. An init container supplies Torpor's program. The image of the cluster's own servers
// supplies MySQL clients of the right version. The Pod does not use the Kubernetes API.
func buildPodTemplate(cluster *mocov1beta2.MySQLCluster, job mocov1beta2.JobConfig, image string, t programRun) (corev1.PodTemplateSpec, error) {
	var none corev1.PodTemplateSpec
	if image == "" {
		return none, errNoImage
	}
	server, err := parseServerPodSpec(cluster)
	if err != nil {
		return none, err
	}
	where, err := parseStorage(job)
	if err != nil {
		return none, err
	}
	t.args = append(t.args, where.flags...)
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: job.ServiceAccountName, AutomountServiceAccountToken: new(false),
		ImagePullSecrets: server.ImagePullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(runAsUser)), RunAsGroup: new(int64(runAsUser)), FSGroup: new(int64(runAsUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{{
			Name: copyContainer, Image: image, Args: []string{"copy", programPath}, SecurityContext: restrictedSecurityContext(),
			VolumeMounts: []corev1.VolumeMount{{Name: programVolume, MountPath: programFolder}},
		}},
		Volumes: []corev1.Volume{
			emptyDirVolume(programVolume, corev1.StorageMediumDefault, programSize), emptyDirVolume(scratchVolume, corev1.StorageMediumMemory, scratchSize),
		},
	}
	if spec.Containers, err = buildContainers(cluster, job, server.Containers[0].Image, t); err != nil {
		return none, err
	}
	if where.volume != nil {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volumeName, VolumeSource: *where.volume})
		mounts := &spec.Containers[0].VolumeMounts
		*mounts = append(*mounts, corev1.VolumeMount{Name: volumeName, MountPath: volumeFolder})
	}
	volumes, err := decodeKeptList[corev1.Volume](job.Volumes, "volumes")
	if err != nil {
		return none, err
	}
	spec.Volumes = append(spec.Volumes, volumes...)
	if job.Affinity != nil {
		if err := decodeKept(*job.Affinity, &spec.Affinity, "affinity"); err != nil {
			return none, err
		}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: JobLabels(cluster.Name, t.kind)}, Spec: spec}, nil
}

func buildContainers(cluster *mocov1beta2.MySQLCluster, job mocov1beta2.JobConfig, image string, t programRun) ([]corev1.Container, error) {
	env, err := decodeKeptList[corev1.EnvVar](job.Env, "env")
	if err != nil {
		return nil, err
	}
	envFrom, err := decodeKeptList[corev1.EnvFromSource](job.EnvFrom, "envFrom")
	if err != nil {
		return nil, err
	}
	mounts, err := decodeKeptList[corev1.VolumeMount](job.VolumeMounts, "volumeMounts")
	if err != nil {
		return nil, err
	}
	password := corev1.EnvVar{Name: PasswordVariable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: cluster.ChildName()}, Key: t.key,
	}}}
	authorities := corev1.EnvVar{Name: AuthoritiesVariable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: cluster.TLSSecretName()}, Key: certificates.AuthorityFile,
	}}}
	return []corev1.Container{{
		Name: ContainerName, Image: image, Command: []string{programPath}, Args: t.args, SecurityContext: restrictedSecurityContext(),
		Env: append([]corev1.EnvVar{password, authorities}, env...), EnvFrom: envFrom,
		VolumeMounts: append([]corev1.VolumeMount{
			{Name: programVolume, MountPath: programFolder, ReadOnly: true}, {Name: scratchVolume, MountPath: scratchFolder},
		}, mounts...),
		Resources: corev1.ResourceRequirements{
			Requests: resourceList(job.CPU, job.Memory), Limits: resourceList(job.MaxCPU, job.MaxMemory),
		},
		TerminationMessagePath: messageFile, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}}, nil
}

func resourceList(cpu, memory *resource.Quantity) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != nil {
		list[corev1.ResourceCPU] = *cpu
	}
	if memory != nil {
		list[corev1.ResourceMemory] = *memory
	}
	return list
}

func emptyDirVolume(name string, medium corev1.StorageMedium, size string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium, SizeLimit: new(resource.MustParse(size))},
	}}
}

func restrictedSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// parseServerPodSpec returns the Pod spec of the servers with only the mysqld container.
func parseServerPodSpec(cluster *mocov1beta2.MySQLCluster) (corev1.PodSpec, error) {
	var spec corev1.PodSpec
	if err := json.Unmarshal(cluster.Spec.PodTemplate.Spec.Raw, &spec); err != nil {
		return spec, fmt.Errorf("decode spec.podTemplate.spec: %w", err)
	}
	spec.Containers = slices.DeleteFunc(spec.Containers, func(c corev1.Container) bool { return c.Name != mocov1beta2.MysqldContainer })
	if len(spec.Containers) == 0 || spec.Containers[0].Image == "" {
		return spec, errors.New("spec.podTemplate.spec: expected an image of the mysqld container, found none; set it, because the Job uses the same image")
	}
	return spec, nil
}
