// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// backupCreated tells that a backup is whole in the bucket.
	backupCreated = "BackupCreated"
	// backupFailed tells that a Job gave up making a backup.
	backupFailed = "BackupFailed"
	// backupImpossible tells that the CronJob or the Job could not be made, and why.
	backupImpossible = "BackupImpossible"
	// restored tells that the data of a backup are in the cluster.
	restored = "Restored"
	// restoreFailed tells that the Job gave up filling the cluster.
	restoreFailed = "RestoreFailed"
)
