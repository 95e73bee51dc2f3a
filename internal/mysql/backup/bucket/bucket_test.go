// SPDX-License-Identifier: Apache-2.0

package bucket_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestFolder(t *testing.T) {
	testContract(t, bucket.Config{Folder: t.TempDir()})
}

func TestS3(t *testing.T) {
	s := testenv.StartS3(t)
	c := bucket.Config{Name: testenv.S3Bucket, Endpoint: s.URL, PathStyle: true}
	testContract(t, c)
	t.Run("a missing bucket is an error", func(t *testing.T) {
		c := c
		c.Name = "elsewhere"
		expectPutError(t, c, "NoSuchBucket", "create the bucket")
	})
	t.Run("wrong credentials are an error that does not contain the credentials", func(t *testing.T) {
		s.SetCredentials(t, s.AccessKey, "not-the-secret")
		expectPutError(t, c, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY in jobConfig.env")
		s.SetCredentials(t, "not-the-key", "not-the-secret")
		expectPutError(t, c, "access key")
	})
	t.Run("an endpoint that does not respond is an error", func(t *testing.T) {
		c := c
		c.Endpoint = "http://127.0.0.1:1"
		expectPutError(t, c, "connection refused", "endpoint")
	})
	t.Run("a missing CA file is an error", func(t *testing.T) {
		c := c
		c.CACert = filepath.Join(t.TempDir(), "ca.pem")
		if _, err := bucket.OpenStore(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("expected a missing file, found %v", err)
		}
	})
}

// TestEncryption checks the encryption that the request asks for. versitygw does not encrypt, so reading the object
// would prove nothing.
func TestEncryption(t *testing.T) {
	var asked sync.Map
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // The client reports the error.
		what := "put"
		if r.URL.Query().Has("uploads") {
			what = "begin"
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
		}
		if !r.URL.Query().Has("uploadId") { // The settings of an upload's beginning apply to its parts and its end.
			asked.LoadOrStore(what, r.Header.Get("X-Amz-Server-Side-Encryption")+" "+r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"))
		}
		w.Header().Set("ETag", `"e"`)
	}))
	defer storage.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	b := openStore(t, bucket.Config{Name: "b", Endpoint: storage.URL, PathStyle: true, Encryption: "aws:kms", KMSKeyID: "alias/backups"})
	for what, size := range map[string]int64{"put": 10, "begin": 70 << 20} {
		_, _ = b.PutObject(t.Context(), "moco/a", io.LimitReader(zeros{}, size)) // The stub's answers are too short for a success.
		if found, _ := asked.Load(what); found != "aws:kms alias/backups" {
			t.Errorf("%s: expected to ask for aws:kms with the key, found %q", what, found)
		}
	}
}

func TestNowhere(t *testing.T) {
	if _, err := bucket.OpenStore(t.Context(), bucket.Config{}); err == nil || !strings.Contains(err.Error(), "--bucket or --folder") {
		t.Errorf("expected to be asked for --bucket or --folder, found %v", err)
	}
	if _, err := bucket.OpenStore(t.Context(), bucket.Config{Folder: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("expected a missing folder, found %v", err)
	}
}

func expectPutError(t *testing.T, c bucket.Config, words ...string) {
	t.Helper()
	b := openStore(t, c)
	_, err := b.PutObject(t.Context(), "moco/a", strings.NewReader("x"))
	if err == nil {
		t.Fatal("expected an error, found none")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("expected %q in the error, found %v", w, err)
		}
	}
	if strings.Contains(err.Error(), "not-the-secret") {
		t.Errorf("the error shows the secret: %v", err)
	}
}

func openStore(t *testing.T, c bucket.Config) bucket.Store {
	t.Helper()
	b, err := bucket.OpenStore(t.Context(), c)
	testenv.ExpectNoError(t, err)
	return b
}

func testContract(t *testing.T, c bucket.Config) {
	b := openStore(t, c)
	list := func(t *testing.T) []string {
		t.Helper()
		keys, err := bucket.ListKeys(t.Context(), b, "moco/ns/test/")
		testenv.ExpectNoError(t, err)
		slices.Sort(keys)
		return keys
	}
	t.Run("a new bucket is empty", func(t *testing.T) {
		if keys := list(t); len(keys) != 0 {
			t.Errorf("found %q", keys)
		}
		if _, err := b.GetObject(t.Context(), "moco/ns/test/none"); err == nil {
			t.Error("expected an error for a missing object, found none")
		}
	})
	t.Run("an upload whose reader fails leaves no object", func(t *testing.T) {
		broken := errors.New("the dump broke")
		for _, size := range []int64{10, 70 << 20} { // A small size is uploaded in one part, a large size in several parts.
			from := io.MultiReader(io.LimitReader(zeros{}, size), failing{broken})
			if _, err := b.PutObject(t.Context(), "moco/ns/test/broken", from); !errors.Is(err, broken) {
				t.Errorf("expected the stream's own error, found %v", err)
			} else if strings.Contains(err.Error(), "check the bucket") {
				t.Errorf("expected no advice about the storage for an error of the stream, found %v", err)
			}
		}
		if keys := list(t); len(keys) != 0 {
			t.Errorf("expected nothing, found %q", keys)
		}
	})
	t.Run("a cancelled upload leaves no object", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		from := io.MultiReader(io.LimitReader(zeros{}, 70<<20), calling(cancel), zeros{})
		if _, err := b.PutObject(ctx, "moco/ns/test/broken", from); err == nil {
			t.Error("expected an error, found none")
		}
		if keys := list(t); len(keys) != 0 {
			t.Errorf("expected nothing, found %q", keys)
		}
	})
	t.Run("an object that was written can be read", func(t *testing.T) {
		for key, text := range map[string]string{"moco/ns/test/1/a": "first", "moco/ns/test/2/b": "", "moco/ns/test2/1/a": "another's"} {
			if size, err := b.PutObject(t.Context(), key, strings.NewReader(text)); err != nil || size != int64(len(text)) {
				t.Fatalf("put %s: %d bytes, %v", key, size, err)
			}
			from, err := b.GetObject(t.Context(), key)
			testenv.ExpectNoError(t, err)
			found, err := io.ReadAll(from)
			if err = errors.Join(err, from.Close()); err != nil || string(found) != text {
				t.Errorf("%s: expected %q, found %q, %v", key, text, found, err)
			}
		}
		testenv.ExpectEqual(t, "keys", []string{"moco/ns/test/1/a", "moco/ns/test/2/b"}, list(t))
	})
	t.Run("a deleted object cannot be read", func(t *testing.T) {
		for range 2 { // The object does not exist when it is deleted the second time.
			testenv.ExpectNoError(t, b.DeleteObject(t.Context(), "moco/ns/test/2/b"))
		}
		testenv.ExpectEqual(t, "keys", []string{"moco/ns/test/1/a"}, list(t))
	})
	t.Run("a large object is streamed in little memory", func(t *testing.T) {
		const size, most = 800 << 20, 400 << 20 // The limit is twice the size of the parts being uploaded, because garbage is collected late.
		peak := watchMemory(t)
		if n, err := b.PutObject(t.Context(), "moco/ns/test/3/large", io.LimitReader(zeros{}, size)); err != nil || n != size {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if used := peak(); used > most {
			t.Errorf("expected at most %d MB, found %d MB", most>>20, used>>20)
		} else {
			t.Logf("%d MB at most", used>>20)
		}
		from, err := b.GetObject(t.Context(), "moco/ns/test/3/large")
		testenv.ExpectNoError(t, err)
		n, err := io.Copy(io.Discard, from)
		if err = errors.Join(err, from.Close()); err != nil || n != size {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}

// watchMemory returns a function that returns the largest heap size since watchMemory was called.
func watchMemory(t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var most atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapInuse-min(now.HeapInuse, before.HeapInuse)))
			<-tick.C
		}
	}()
	return func() uint64 {
		stop()
		<-done
		return most.Load()
	}
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

type calling func()

// Read implements io.Reader.
func (c calling) Read([]byte) (int, error) {
	c()
	return 0, io.EOF
}
