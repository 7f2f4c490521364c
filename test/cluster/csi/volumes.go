package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// volumes are the volumes of the cluster: each is a file system in memory of its own, mounted on a folder,
// with a record beside it. A volume lives as long as the cluster's mount namespace.
type volumes struct {
	dir     string
	mounter mounter
	mu      sync.Mutex
}

// record is what a file beside the folder of a volume says of it.
type record struct {
	// Size is what the controller granted, and Grown the size of the file system.
	Size, Grown int64
	// Offline volumes do not grow while a pod has them.
	Offline bool
}

// mounter mounts as Linux does.
type mounter interface {
	// Memory mounts a file system in memory on a folder, or gives the one that is mounted there another size.
	Memory(folder string, size int64) error
	// Bind mounts a folder on another.
	Bind(from, to string, readOnly bool) error
	// Unmount undoes both. It is no error if nothing is mounted.
	Unmount(folder string) error
	// Mounted tells whether something is mounted on a folder.
	Mounted(folder string) (bool, error)
}

var (
	idPattern = regexp.MustCompile(`^[-a-z0-9]+$`)
	// errNone: there is no such volume.
	errNone = errors.New("there is no such volume")
)

func (v *volumes) folder(id string) string { return filepath.Join(v.dir, "volumes", id) }

// limit is the size, in bytes, beyond which the volume refuses to grow: whoever tests what happens then
// writes it into this file.
func (v *volumes) limit(id string) (int64, error) {
	b, err := os.ReadFile(v.folder(id) + ".limit")
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func (v *volumes) read(id string) (record, error) {
	var r record
	if !idPattern.MatchString(id) { // else it names another file
		return r, errNone
	}
	b, err := os.ReadFile(v.folder(id) + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return r, errNone
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

func (v *volumes) write(id string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := v.folder(id) + ".json"
	if err := os.WriteFile(path+".tmp", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// grow gives the file system of the volume the size that was granted, and mounts it if it is not.
func (v *volumes) grow(id string, r record) error {
	if err := os.MkdirAll(v.folder(id), 0o777); err != nil {
		return err
	}
	if err := v.mounter.Memory(v.folder(id), r.Size); err != nil {
		return fmt.Errorf("mount volume %s: %w", id, err)
	}
	r.Grown = r.Size
	return v.write(id, r)
}

// remove removes all of a volume that is there.
func (v *volumes) remove(id string) error {
	if err := v.mounter.Unmount(v.folder(id)); err != nil {
		return err
	}
	if err := os.Remove(v.folder(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	os.Remove(v.folder(id) + ".limit") //nolint:errcheck // there seldom is one
	return os.Remove(v.folder(id) + ".json")
}

// linux mounts with the kernel's own calls.
type linux struct{}

// Memory mounts a file system in memory, or gives it another size.
func (l linux) Memory(folder string, size int64) error {
	mounted, err := l.Mounted(folder)
	if err != nil {
		return err
	}
	flags := uintptr(0)
	if mounted {
		flags = syscall.MS_REMOUNT
	}
	return syscall.Mount("tmpfs", folder, "tmpfs", flags, fmt.Sprintf("size=%d,mode=0777", size))
}

// Bind mounts a folder on another.
func (linux) Bind(from, to string, readOnly bool) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return syscall.Mount("", to, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, "")
}

// Unmount takes away what is mounted.
func (linux) Unmount(folder string) error {
	err := syscall.Unmount(folder, 0)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// Mounted compares the device of a folder with that of its parent; volumes are mounted on folders of other
// file systems only.
func (linux) Mounted(folder string) (bool, error) {
	var own, parent syscall.Stat_t
	err := syscall.Stat(folder, &own)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return own.Dev != parent.Dev, errors.Join(err, syscall.Stat(filepath.Dir(folder), &parent))
}
