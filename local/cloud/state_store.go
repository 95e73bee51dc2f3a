// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// stateStore keeps the state in one file: one line with the whole state, and then a line for each later change. The
// cost of a change depends only on the size of the change.
type stateStore struct {
	dir  string
	lock *os.File
	// file is open for appending.
	file *os.File
	// baseBytes and addedBytes are the sizes of the first line and of the other lines.
	baseBytes, addedBytes int
	// mustRewrite is true if the end of the file may differ from the last write.
	mustRewrite bool
}

// minRewriteBytes is the minimum size of the added lines before the whole file is rewritten.
const minRewriteBytes = 1 << 20

// openStore locks the folder for this process; the lock is always released when the process ends.
func openStore(dir string) (*stateStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the cloud's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file in the cloud's folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another cloud uses the folder %s; end it or choose another folder: %w", dir, err), lock.Close())
	}
	return &stateStore{dir: dir, lock: lock, mustRewrite: true}, nil
}

func (s *stateStore) close() error {
	if s.file == nil {
		return s.lock.Close()
	}
	return errors.Join(s.file.Close(), s.lock.Close())
}

func (s *stateStore) filePath() string { return filepath.Join(s.dir, "cloud.json") }

func (s *stateStore) loadState() (*cloudState, error) {
	known := newState()
	text, err := os.ReadFile(s.filePath())
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cloud's state: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err = decoder.Decode(known); err == nil {
		known.buildIndexes()
		err = known.applyLines(text[decoder.InputOffset():])
	}
	if err != nil {
		return nil, fmt.Errorf("the cloud's state in %s is not in the JSON format of this version; move the file away to start with an empty cloud: %w", s.filePath(), err)
	}
	return known, nil
}

// applyLines replays the changes in the file. A truncated last line belongs to a call that was never answered.
func (s *cloudState) applyLines(text []byte) error {
	for line := range bytes.Lines(bytes.TrimLeft(text, "\n")) {
		var c stateChange
		if !bytes.HasSuffix(line, []byte("\n")) {
			return nil
		}
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		s.apply(c)
	}
	return nil
}

// saveChange writes a change to the state and returns when it is on the disk. If it fails, the caller must not
// change the state.
func (s *stateStore) saveChange(state *cloudState, c stateChange) error {
	if s.mustRewrite || s.addedBytes > max(minRewriteBytes, s.baseBytes) {
		if err := s.saveState(state); err != nil {
			return err
		}
	}
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	_, err = s.file.Write(append(line, '\n'))
	if err = errors.Join(err, s.file.Sync()); err != nil {
		s.mustRewrite = true
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	s.addedBytes += len(line)
	return nil
}

// saveState replaces the whole file and returns when the new file is on the disk.
func (s *stateStore) saveState(state *cloudState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	next, err := os.OpenFile(s.filePath()+".next", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	// Sync the new file before renaming it, so that a crash leaves either the old state or the new state.
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Sync())
	if err == nil {
		err = os.Rename(next.Name(), s.filePath())
	}
	if err == nil {
		err = s.syncDir()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace the cloud's state: %w", err), next.Close())
	}
	if s.file != nil {
		_ = s.file.Close() // The old file is not used any more, so an error does not matter.
	}
	s.file, s.baseBytes, s.addedBytes, s.mustRewrite = next, len(text), 0, false
	return nil
}

func (s *stateStore) syncDir() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("open the cloud's folder: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync the cloud's folder: %w", err)
	}
	return nil
}
