// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Credentials of the S3 server.
const (
	s3AccessKey = "torpor-test"
	s3SecretKey = "torpor-test-secret-key"
)

// S3Bucket is the bucket that the S3 server begins with.
const S3Bucket = "backups"

// S3Server is a real S3 server with one bucket, kept in a folder.
type S3Server struct {
	*Process
	// URL of the server. It wants the bucket's name in the path.
	URL string
	// Folder holds the objects of the bucket as files.
	Folder string
	// AccessKey and SecretKey let in.
	AccessKey, SecretKey string
}

// StartS3 starts a real S3 server and hands its credentials to the test by the environment, as a Pod gets them. The program is
// versitygw, whose path the environment variable TORPOR_S3 holds; without it the test is skipped.
func StartS3(t testing.TB) *S3Server {
	t.Helper()
	return StartS3At(t, "127.0.0.1")
}

// StartS3At is S3 for clients that reach the machine only at the address ip.
func StartS3At(t testing.TB, ip string) *S3Server {
	t.Helper()
	path := os.Getenv("TORPOR_S3")
	if path == "" {
		t.Skip("TORPOR_S3 is not set: expected the path of versitygw; build it with `make s3`, run with `make test`")
	}
	root := t.TempDir()
	s := &S3Server{Folder: filepath.Join(root, "data", S3Bucket), AccessKey: s3AccessKey, SecretKey: s3SecretKey}
	for _, dir := range []string{s.Folder, filepath.Join(root, "metadata")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t, ip)
	s.URL = "http://" + address
	s.Process = StartProcess(t, path, []string{
		"--port", address, "--quiet", "posix", "--sidecar", filepath.Join(root, "metadata"), filepath.Join(root, "data"),
	}, []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey})
	Eventually(t, "the S3 server accepts connections", func() error {
		var dialer net.Dialer
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		return c.Close()
	})
	s.SetCredentials(t, s.AccessKey, s.SecretKey)
	return s
}

// SetCredentials puts credentials into the test's environment.
func (s *S3Server) SetCredentials(t testing.TB, access, secret string) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}
