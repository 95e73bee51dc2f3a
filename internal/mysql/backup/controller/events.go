// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// backupCreated means that a backup is whole in the bucket.
	backupCreated = "BackupCreated"
	// backupFailed means that a Job gave up making a backup.
	backupFailed = "BackupFailed"
	// backupImpossible means that the CronJob or the Job could not be made, and why.
	backupImpossible = "BackupImpossible"
	// binlogGap means that binary logs were purged before they were copied, or that the primary was replaced by one that had less.
	binlogGap = "BinlogGap"
	// restored means that the data of a backup are in the cluster.
	restored = "Restored"
	// restoreFailed means that the Job gave up filling the cluster.
	restoreFailed = "RestoreFailed"
)
