// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// reservation is what one RunInstances created.
type reservation struct {
	ID string `json:"id"`
	// Sequence grows with each reservation; pages are cut along it.
	Sequence    int      `json:"sequence"`
	ClientToken string   `json:"clientToken,omitempty"`
	Digest      string   `json:"digest,omitempty"`
	Instances   []string `json:"instances"`
}

// cloudState is everything the cloud knows, and the content of its file. It is a value: changes return a new one.
type cloudState struct {
	Sequence     int                 `json:"sequence"`
	Reservations []reservation       `json:"reservations"`
	Instances    map[string]instance `json:"instances"`
}

// withInstances returns the ledger with the instances put in.
func (l cloudState) withInstances(changed ...instance) cloudState {
	instances := maps.Clone(l.Instances)
	for _, i := range changed {
		instances[i.ID] = i
	}
	l.Instances = instances
	return l
}

// withReservation returns the ledger with one more reservation, of these new instances, and that reservation.
func (l cloudState) withReservation(r reservation, created []instance) (cloudState, reservation) {
	l.Sequence++
	r.Sequence = l.Sequence
	for _, i := range created {
		r.Instances = append(r.Instances, i.ID)
	}
	l.Reservations = append(slices.Clip(l.Reservations), r)
	return l.withInstances(created...), r
}

// withoutInstances returns the ledger with the instances forgotten, and the reservations that become empty.
func (l cloudState) withoutInstances(ids ...string) cloudState {
	instances := maps.Clone(l.Instances)
	for _, id := range ids {
		delete(instances, id)
	}
	var kept []reservation
	for _, r := range l.Reservations {
		r.Instances = slices.DeleteFunc(slices.Clone(r.Instances), func(id string) bool { return slices.Contains(ids, id) })
		if len(r.Instances) > 0 {
			kept = append(kept, r)
		}
	}
	l.Instances, l.Reservations = instances, kept
	return l
}

// stateStore keeps the ledger in one file.
type stateStore struct {
	dir  string
	lock *os.File
}

// openStore takes the folder for this process alone; the lock ends with the process, however it ends.
func openStore(dir string) (*stateStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the cloud's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cloud's folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another cloud uses the folder %s; end it or choose another folder: %w", dir, err), lock.Close())
	}
	return &stateStore{dir: dir, lock: lock}, nil
}

func (s *stateStore) close() error { return s.lock.Close() }

func (s *stateStore) filePath() string { return filepath.Join(s.dir, "cloud.json") }

func (s *stateStore) loadState() (cloudState, error) {
	known := cloudState{Instances: map[string]instance{}}
	text, err := os.ReadFile(s.filePath())
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return cloudState{}, fmt.Errorf("read the cloud's state: %w", err)
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return cloudState{}, fmt.Errorf("the cloud's state in %s is not the JSON this version writes; move the file away to start with an empty cloud: %w", s.filePath(), err)
	}
	return known, nil
}

// saveState replaces the file as a whole and returns when the new one is on the disk.
func (s *stateStore) saveState(l cloudState) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	next, err := os.OpenFile(s.filePath()+".next", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	// The new file is on the disk before it gets the name: a crash leaves the old state or the new one.
	_, err = next.Write(text)
	err = errors.Join(err, next.Sync(), next.Close())
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	if err := os.Rename(next.Name(), s.filePath()); err != nil {
		return fmt.Errorf("replace the cloud's state: %w", err)
	}
	return s.syncDir()
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
