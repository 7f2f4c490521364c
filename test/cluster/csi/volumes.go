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

// volumes are the volumes of the cluster. Each volume is a file system in memory, mounted on a folder, with a
// record in a file beside it. A volume lives as long as the cluster's mount namespace.
type volumes struct {
	dir     string
	mounter mounter
	mu      sync.Mutex
}

// record is the content of the file beside the folder of a volume.
type record struct {
	// Size is the size that the controller granted, and Grown the size of the file system.
	Size, Grown int64
	// Offline volumes do not grow while a pod uses them.
	Offline bool
}

// mounter mounts file systems as Linux does.
type mounter interface {
	// Memory mounts a file system in memory on a folder, or resizes the one that is mounted there.
	Memory(folder string, size int64) error
	// Bind mounts a folder on another folder.
	Bind(from, to string, readOnly bool) error
	// Unmount undoes both. It is no error if nothing is mounted.
	Unmount(folder string) error
	// Mounted reports whether something is mounted on a folder.
	Mounted(folder string) (bool, error)
}

var (
	idPattern = regexp.MustCompile(`^[-a-z0-9]+$`)
	// errNone is returned for a volume that does not exist.
	errNone = errors.New("there is no such volume")
)

func (v *volumes) folder(id string) string { return filepath.Join(v.dir, "volumes", id) }

// limit returns the size in bytes beyond which the volume refuses to grow. Tests of that case write it to a
// file.
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
	if !idPattern.MatchString(id) { // otherwise it may refer to another file
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

// grow mounts the file system of the volume, or resizes it, to the size that was granted.
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

// remove removes a volume and all its files.
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

// linux implements mounter with system calls.
type linux struct{}

// Memory mounts a file system in memory, or resizes it.
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

// Bind mounts a folder on another folder.
func (linux) Bind(from, to string, readOnly bool) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return syscall.Mount("", to, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, "")
}

// Unmount unmounts a folder.
func (linux) Unmount(folder string) error {
	err := syscall.Unmount(folder, 0)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// Mounted compares the device of a folder with that of its parent, because volumes are only mounted on
// folders of other file systems.
func (linux) Mounted(folder string) (bool, error) {
	var own, parent syscall.Stat_t
	err := syscall.Stat(folder, &own)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return own.Dev != parent.Dev, errors.Join(err, syscall.Stat(filepath.Dir(folder), &parent))
}
