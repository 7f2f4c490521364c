package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// krewPlugin is an entry of an index of krew, by which kubectl krew installs the plugin.
type krewPlugin struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec krewSpec `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector metav1.LabelSelector `json:"selector"`
	URI      string               `json:"uri"`
	SHA256   string               `json:"sha256"`
	Bin      string               `json:"bin"`
	Files    []krewFile           `json:"files"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

const pluginName = "afloat"

const pluginDescription = `Says of each pod of a CloneSet, StatefulSet, DaemonSet or SidecarSet of apps.kruise.io why it waits (why), what a
changed manifest would do to which pods (plan), and has the commands with which one rolls out, restarts, migrates and examines such
workloads. It needs no more than the user's own rights.
`

// krew writes the manifest of the plugin for krew, with every platform that the release has.
func (r *release) krew(_ context.Context, built *binaries) error {
	p := krewPlugin{TypeMeta: metav1.TypeMeta{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
	}}
	p.Metadata.Name = pluginName
	p.Spec = krewSpec{
		Version:          r.version,
		Homepage:         source,
		Description:      pluginDescription,
		ShortDescription: "Explain and control in-place rollouts",
	}

	for _, b := range built.all {
		if b.name != "kubectl-"+pluginName {
			continue
		}
		archive := r.archiveName(b.program, b.platform) + ".tar.gz"
		if b.os == "windows" {
			archive = r.archiveName(b.program, b.platform) + ".zip"
		}
		sum, err := checksum(r.path(archive))
		if err != nil {
			return err
		}
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"os": b.os, "arch": b.arch}},
			URI:      r.downloads + "/" + archive,
			SHA256:   sum,
			Bin:      b.file(),
			Files:    []krewFile{{b.file(), "."}, {"LICENSE", "."}, {licensesFile, "."}},
		})
	}

	if len(p.Spec.Platforms) == 0 {
		return nil
	}
	if err := p.validate(); err != nil {
		return err
	}

	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}

	return os.WriteFile(r.path(pluginName+".yaml"), text, 0o644)
}

var (
	safeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	sha256ed = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// validate applies the rules that krew has for entries of its index.
func (p krewPlugin) validate() error {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" {
		refuse("%s %s is not what krew reads", p.APIVersion, p.Kind)
	}
	if !safeName.MatchString(p.Metadata.Name) || strings.HasPrefix(p.Metadata.Name, "kubectl") {
		refuse("%q is no name of a plugin", p.Metadata.Name)
	}
	if !strings.HasPrefix(p.Spec.Version, "v") || !semver.IsValid(p.Spec.Version) {
		refuse("%q is no version", p.Spec.Version)
	}
	if d := p.Spec.ShortDescription; d == "" || len(d) > 50 || strings.ContainsAny(d, "\n\r") ||
		strings.HasSuffix(d, ".") {
		refuse("%q is no short description", d)
	}
	if p.Spec.Description == "" || p.Spec.Homepage == "" {
		refuse("description or homepage is missing")
	}
	if len(p.Spec.Platforms) == 0 {
		refuse("no platform")
	}

	seen := map[string]bool{}
	for _, on := range p.Spec.Platforms {
		labels := on.Selector.MatchLabels
		if key := labels["os"] + "/" + labels["arch"]; len(labels) != 2 || labels["os"] == "" ||
			labels["arch"] == "" || seen[key] {
			refuse("platform %s is there twice, or selects by something else", key)
		} else {
			seen[key] = true
		}
		if !sha256ed.MatchString(on.SHA256) {
			refuse("%q is no SHA-256", on.SHA256)
		}
		if !strings.HasSuffix(on.URI, ".tar.gz") && !strings.HasSuffix(on.URI, ".zip") {
			refuse("%s is no archive that krew unpacks", on.URI)
		}
		if (labels["os"] == "windows") != strings.HasSuffix(on.Bin, ".exe") {
			refuse("%s is no program of %s", on.Bin, labels["os"])
		}
		has := map[string]bool{}
		for _, f := range on.Files {
			if f.From == "" || f.To == "" || strings.Contains(f.From+f.To, "..") ||
				strings.HasPrefix(f.From, "/") {
				refuse("%q to %q leads out of the archive", f.From, f.To)
			}
			has[f.From] = true
		}
		if !has[on.Bin] || !has["LICENSE"] {
			refuse("%s or LICENSE is not among the files", on.Bin)
		}
	}

	return errors.Join(wrong...)
}
