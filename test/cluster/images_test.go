package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// registryCluster returns a cluster whose registry is served from dir.
func registryCluster(t *testing.T, dir string) *cluster {
	t.Helper()
	h, err := newRegistry(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{name: "t", spec: spec{Ports: ports{Registry: port}}}
}

func digest(t *testing.T, c *cluster, image string) string {
	t.Helper()
	ref, err := c.reference(image)
	if err != nil {
		t.Fatal(err)
	}
	d, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest.String()
}

func TestTagsDifferInDigestUnlessTheyAreTheSameImage(t *testing.T) {
	c := registryCluster(t, t.TempDir())
	base, err := layer(accounts())
	if err != nil {
		t.Fatal(err)
	}
	push := func(content, tag string) {
		t.Helper()
		img, err := webImage(base, content)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.push(img, tag); err != nil {
			t.Fatal(err)
		}
	}
	push("nginx:1.26", "nginx:1.26")
	push("nginx:1.27", "nginx:1.27")
	push("nginx:1.27", "nginx:1.27-same")
	if digest(t, c, "nginx:1.26") == digest(t, c, "nginx:1.27") {
		t.Error("1.26 and 1.27 have one digest")
	}
	if digest(t, c, "nginx:1.27") != digest(t, c, "nginx:1.27-same") {
		t.Error("1.27 and 1.27-same have different digests")
	}
}

func TestImagesSurviveTheRegistry(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "script")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := buildRequest{binaries: []string{binary + "=/manager"}, entrypoint: "/manager"}.image()
	if err != nil {
		t.Fatal(err)
	}
	first := registryCluster(t, dir)
	if err := first.push(img, "ghcr.io/afloat-project/manager:dev"); err != nil {
		t.Fatal(err)
	}
	second := registryCluster(t, dir)
	if digest(t, second, "afloat-project/manager:dev") == "" {
		t.Error("the image is gone")
	}
	if _, err := second.reference("Not A Name"); err == nil {
		t.Error("a bad name is accepted")
	}
}

func TestADynamicBinaryIsRefused(t *testing.T) {
	if err := checkStatic("/bin/sh"); err == nil {
		t.Error("/bin/sh is linked dynamically and was accepted")
	}
}

func TestPrivateRepositoriesAskForTheAccount(t *testing.T) {
	c := registryCluster(t, t.TempDir())
	base, err := layer(accounts())
	if err != nil {
		t.Fatal(err)
	}
	img, err := webImage(base, "private/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.push(img, "private/app:v1", "app:v1"); err != nil {
		t.Fatal(err)
	}
	get := func(repository, user, password string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.registry()+"/v2/"+repository+"/manifests/v1",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			request.SetBasicAuth(user, password)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if a, b, d, e := get("app", "", ""), get("private/app", "", ""), get("private/app", privateUser, "guess"),
		get("private/app", privateUser, privatePassword); a != 200 || b != 401 || d != 401 || e != 200 {
		t.Errorf("open %d, no account %d, wrong account %d, account %d", a, b, d, e)
	}
}

func TestAnImageIsCarriedToAnotherClusterAsAFile(t *testing.T) {
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "program"), filepath.Join(dir, "image.tar")
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := buildRequest{binaries: []string{program + "=/program"}, entrypoint: "/program", user: "65534"}.image()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeArchive(archive, img, "afloat/manager:try", "registry.example.com/afloat/manager:1"); err != nil {
		t.Fatal(err)
	}
	want, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"afloat/manager:try", "registry.example.com/afloat/manager:1"} {
		tag, err := name.NewTag(n)
		if err != nil {
			t.Fatal(err)
		}
		read, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read.ConfigName(); err != nil || got != want {
			t.Errorf("%s: %s, want %s, %v", n, got, want, err)
		}
	}
}
