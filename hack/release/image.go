package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// source is where the code is.
const source = "https://github.com/afloat-project/afloat"

// imageName is the name of a program's image, with the tag of the release.
func (r *release) imageName(p program) string { return r.repository + "/" + p.image + ":" + r.version }

// imageFile is the file with the image for all platforms.
func (r *release) imageFile(p program) string {
	return fmt.Sprintf("afloat-%s_%s_image.tar", p.image, r.version)
}

// writeImages writes an image of each program of the cluster, for all its platforms, as an archive of an OCI
// layout.
func (r *release) writeImages(_ context.Context, built *binaries) error {
	r.images = map[string]string{}
	var list bytes.Buffer
	for _, p := range r.programs {
		var index v1.ImageIndex = mutate.Annotations(empty.Index, r.annotations(p)).(v1.ImageIndex)
		platforms := 0
		for _, b := range built.all {
			if b.name != p.name || p.image == "" {
				continue
			}
			img, err := r.image(b, built.licenses[b.path])
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add:        img,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
			})
			platforms++
		}
		if platforms == 0 {
			continue
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		image := r.imageName(p)
		if _, err := name.NewTag(image); err != nil {
			return fmt.Errorf("REPOSITORY: %w", err)
		}
		if err := writeLayout(r.path(r.imageFile(p)), image, r.version, index); err != nil {
			return fmt.Errorf("write %s: %w", image, err)
		}
		r.images[image] = digest.String()
		fmt.Fprintf(&list, "%s@%s\n", image, digest)
	}

	if list.Len() == 0 {
		return nil
	}

	return os.WriteFile(r.path(imagesFile), list.Bytes(), 0o644)
}

// image is that of one program for one platform: the program, its licenses, the accounts and the public
// certificate authorities, by which https addresses such as that of a collector of spans are checked. It has
// no shell (OPS-002).
func (r *release) image(b binary, licenses []byte) (v1.Image, error) {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}

	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}

	system, err := layer([]packed{
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/none\nnonroot:x:65534:65534:nonroot:/:/none\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65534:\n")},
		{"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{"tmp/", 0o1777, nil},
	})
	if err != nil {
		return nil, err
	}

	own, err := layer([]packed{{"licenses/", 0o755, nil}, {"licenses/LICENSE", 0o644, license},
		{"licenses/" + licensesFile, 0o644, licenses}, {b.name, 0o755, data}})
	if err != nil {
		return nil, err
	}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	img, err := mutate.Append(base,
		mutate.Addendum{
			Layer: system,
			History: v1.History{
				CreatedBy: "accounts, certificate authorities",
				Created:   v1.Time{Time: r.date},
			},
		},
		mutate.Addendum{Layer: own, History: v1.History{CreatedBy: b.name, Created: v1.Time{Time: r.date}}})
	if err != nil {
		return nil, err
	}

	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}

	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + b.name},
		User:       b.user,
		WorkingDir: "/",
		Labels:     r.annotations(b.program),
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}

	return mutate.Annotations(img, r.annotations(b.program)).(v1.Image), nil
}

// annotations say what an image is, by the names of OCI.
func (r *release) annotations(p program) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{prefix + "title": "afloat-" + p.name, prefix + "description": p.describe,
		prefix + "version":  r.version,
		prefix + "revision": r.commit, prefix + "source": source, prefix + "licenses": "Apache-2.0",
		prefix + "created": r.date.Format("2006-01-02T15:04:05Z")}
}

// authorities are the public certificate authorities that Mozilla trusts without conditions, which a file
// could not tell.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return text.Bytes()
}

// layer packs files; names that end with a slash are folders.
func layer(files []packed) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(f.data)),
			Format:   tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
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
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeLayout writes an index as an OCI layout in one file, which says by which name docker and containerd
// shall know it.
func writeLayout(path, image, tag string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          image,
		"org.opencontainers.image.ref.name": tag,
	})); err != nil {
		return err
	}

	f, err := os.Create(path)
	if err != nil {
		return err
	}

	return errors.Join(tarFolder(f, dir), f.Close())
}

// tarFolder packs a folder without times and owners.
func tarFolder(to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	// in the order of the names
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir,
				Name:     filepath.ToSlash(name) + "/",
				Mode:     0o755,
				Format:   tar.FormatUSTAR,
			})
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     filepath.ToSlash(name),
			Mode:     0o644,
			Size:     info.Size(),
			Format:   tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return err
	}); err != nil {
		return err
	}

	return w.Close()
}

// readLayout unpacks an archive that writeLayout made into dir, and returns the index in it.
func readLayout(path, dir string) (v1.ImageIndex, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	root, err := os.OpenRoot(dir) // nothing in an archive gets out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()

	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if err := unpack(root, h, t); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", path, err)
		}
	}

	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}

	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images, not one", path, len(manifest.Manifests))
	}

	return top.ImageIndex(manifest.Manifests[0].Digest)
}

func unpack(root *os.Root, h *tar.Header, from io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(strings.TrimSuffix(h.Name, "/"), 0o755)
	}
	f, err := root.Create(h.Name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
