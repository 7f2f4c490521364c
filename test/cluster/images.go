package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// file is an entry of an image layer.
type file struct {
	path string // absolute
	mode int64
	data []byte
	link string // target, for a symbolic link
	dir  bool
}

// layer packs files, with their parent folders, into a layer that depends only on their contents.
func layer(files []file) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{"/": true, ".": true}
	var mkdir func(string, int64) error
	mkdir = func(dir string, mode int64) error {
		if made[dir] {
			return nil
		}
		if err := mkdir(path.Dir(dir), 0o755); err != nil {
			return err
		}
		made[dir] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/",
			Mode: mode})
	}

	for _, f := range files {
		if f.dir {
			if err := mkdir(f.path, f.mode); err != nil {
				return nil, err
			}
			continue
		}

		if err := mkdir(path.Dir(f.path), 0o755); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.path, "/"), Mode: f.mode,
			Size: int64(len(f.data))}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}

	if err := w.Close(); err != nil {
		return nil, err
	}

	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

// image returns an image of the given layers.
func image(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	f = f.DeepCopy()
	f.Architecture, f.OS, f.Config = runtime.GOARCH, "linux", config
	return mutate.ConfigFile(img, f)
}

// accounts returns the files that every image contains.
func accounts() []file {
	return []file{
		{path: "/etc/passwd", mode: 0o644,
			data: []byte("root:x:0:0:root:/root:/bin/sh\nnginx:x:101:101::/nonexistent:/bin/false\n" +
				"nobody:x:65534:65534::/nonexistent:/bin/false\n")},
		{path: "/etc/group", mode: 0o644, data: []byte("root:x:0:\nnginx:x:101:\nnogroup:x:65534:\n")},
		{path: "/tmp", mode: 0o1777, dir: true},
	}
}

const imagePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// buildRequest describes an image of static binaries.
type buildRequest struct {
	names      []string
	binaries   []string // FILE=/destination
	entrypoint string
	args       []string
	user       string
}

func (r buildRequest) image() (v1.Image, error) {
	files := accounts()
	for _, b := range r.binaries {
		from, to, ok := strings.Cut(b, "=")
		if !ok || !path.IsAbs(to) {
			return nil, fmt.Errorf("--binary %s: want FILE=/destination", b)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := checkStatic(from); err != nil {
			return nil, err
		}
		files = append(files, file{path: path.Clean(to), mode: 0o755, data: data})
	}

	if ca, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt"); err == nil {
		files = append(files, file{path: "/etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: ca})
	}
	l, err := layer(files)
	if err != nil {
		return nil, err
	}

	return image(v1.Config{Entrypoint: []string{r.entrypoint}, Cmd: r.args, User: r.user,
		Env: []string{imagePath}}, l)
}

// checkStatic returns an error if a binary needs shared libraries, which the image does not have. Files that
// are not ELF binaries, such as scripts, pass.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil //nolint:nilerr // not an ELF file
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf(
				"%s is linked dynamically and would not run in the image: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// push pushes an image to the cluster's registry under every name.
func (c *cluster) push(img v1.Image, names ...string) error {
	for _, n := range names {
		ref, err := c.reference(n)
		if err != nil {
			return err
		}
		if err := remote.Write(ref, img); err != nil {
			return fmt.Errorf("push %s: %w", n, err)
		}
	}
	return nil
}

// writeArchive writes an image under every name to a file that docker, kind, ctr and others can load.
func writeArchive(path string, img v1.Image, names ...string) error {
	images := map[name.Tag]v1.Image{}
	for _, n := range names {
		tag, err := name.NewTag(n)
		if err != nil {
			return fmt.Errorf("image name %q: %w", n, err)
		}
		images[tag] = img
	}
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		return fmt.Errorf("write the archive %s: %w", path, err)
	}
	return nil
}

// reference returns the reference of an image in the cluster's registry, whatever registry its name contains.
func (c *cluster) reference(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("image name %q: %w", image, err)
	}
	repository := strings.TrimPrefix(ref.Context().RepositoryStr(), "library/")
	return name.ParseReference(c.registry()+"/"+repository+":"+ref.Identifier(), name.Insecure)
}

// testTags are the images of the tests. If same is set, the image has the very manifest of that tag.
var testTags = []struct{ repository, tag, same string }{
	{"nginx", "perl", ""}, {"nginx", "latest", ""}, {"nginx", "1.26", ""}, {"nginx", "1.27", ""},
	{"nginx", "1.28", ""},
	{"nginx", "1.27-same", "1.27"},
	{"private/app", "v1", ""}, {"private/app", "v2", ""},
	{"app", "v1", ""}, {"app", "v2", ""}, {"app", "v3", ""},
}

// pushTestImages builds the test images and pushes them to the registry unless they exist.
func (c *cluster) pushTestImages(force bool) error {
	newest := testTags[len(testTags)-1]
	last, err := c.reference(newest.repository + ":" + newest.tag)
	if err != nil {
		return err
	}
	if _, err := remote.Head(last); err == nil && !force {
		return nil
	}

	dir, err := comp(c.spec.Version, "pause").ensure(c.out)
	if err != nil {
		return err
	}

	pause, err := buildRequest{binaries: []string{filepath.Join(dir, "pause") + "=/pause"},
		entrypoint: "/pause"}.image()
	if err != nil {
		return err
	}
	if err := c.push(pause, "pause:1"); err != nil {
		return err
	}

	base, err := debianLayer(c.out)
	if err != nil {
		return fmt.Errorf("make the test images: %w", err)
	}

	for _, t := range testTags {
		content := t.tag
		if t.same != "" {
			content = t.same
		}
		img, err := webImage(base, t.repository+":"+content)
		if err != nil {
			return fmt.Errorf("make the image %s:%s: %w", t.repository, t.tag, err)
		}
		if err := c.push(img, t.repository+":"+t.tag); err != nil {
			return err
		}
	}

	return nil
}

func comp(version, name string) component {
	for _, c := range components(version) {
		if c.name == name {
			return c
		}
	}
	return component{}
}

// webImage returns an image that responds on port 80 with its own name, and exits at once on SIGTERM.
func webImage(base v1.Layer, self string) (v1.Image, error) {
	const root = "/usr/share/nginx/html"
	serve := []string{"httpd", "-f", "-p", "80", "-h", root}
	own, err := layer([]file{
		{path: root + "/index.html", mode: 0o644, data: []byte(self + "\n")},
		{path: "/usr/sbin/nginx", mode: 0o755,
			data: []byte("#!/bin/sh\nexec " + strings.Join(serve, " ") + "\n")},
	})
	if err != nil {
		return nil, err
	}

	return image(v1.Config{
		Entrypoint: []string{"/sbin/tini", "--"}, Cmd: serve, Env: []string{imagePath, "IMAGE=" + self},
		ExposedPorts: map[string]struct{}{"80/tcp": {}},
	}, base, own)
}

// debianLayer returns a layer with a shell, the usual commands and an init process, all of them static.
func debianLayer(out *progress) (v1.Layer, error) {
	files := accounts()
	for _, b := range []struct{ pkg, from, to string }{
		{"tini", "usr/bin/tini-static", "/sbin/tini"},
		{"bash-static", "bin/bash-static", "/bin/bash"},
		{"busybox-static", "bin/busybox", "/bin/busybox"},
	} {
		dir, err := debianPackage(b.pkg, out)
		if err != nil {
			return nil, err
		}
		from := filepath.Join(dir, b.from)
		if _, err := os.Stat(from); err != nil { // newer releases have everything below /usr
			from = filepath.Join(dir, "usr", b.from)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: b.to, mode: 0o755, data: data})
		if b.pkg == "busybox-static" {
			list, err := exec.Command(from, "--list-full").Output()
			if err != nil {
				return nil, fmt.Errorf("list the commands of busybox: %w", err)
			}
			for applet := range strings.FieldsSeq(string(list)) {
				if to := "/" + applet; to != "/bin/busybox" && to != "/bin/bash" {
					files = append(files, file{path: to, link: "/bin/busybox"})
				}
			}
		}
	}

	return layer(files)
}
