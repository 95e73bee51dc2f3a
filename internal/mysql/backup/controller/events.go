// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// backupCreated means that a backup is complete in the bucket or volume.
	backupCreated = "BackupCreated"
	// backupFailed means that a backup Job failed permanently.
	backupFailed = "BackupFailed"
	// backupImpossible means that the CronJob, the Deployment or the restore Job could not be created or changed. The
	// note contains the reason.
	backupImpossible = "BackupImpossible"
	// binlogGap means that no later time is restorable until the next backup, because binary logs were purged before
	// they were copied, or the new primary has fewer transactions than the old one.
	binlogGap = "BinlogGap"
	// restored means that the data of a backup was loaded into the cluster.
	restored = "Restored"
	// restoreFailed means that the restore Job failed permanently.
	restoreFailed = "RestoreFailed"
)
