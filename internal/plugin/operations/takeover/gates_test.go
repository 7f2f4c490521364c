package takeover

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/featuregate"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// manifestGates are the lists in OpenKruise's own manifests by release.
var manifestGates = map[string]string{"v1.3.0": "AllAlpha=true", "v1.4.2": "AllAlpha=true", "v1.5.5": "AllAlpha=true", "v1.6.4": "AllAlpha=true",
	"v1.7.3": "AllAlpha=true,EnableExternalCerts=false", "v1.7.5": "AllAlpha=true,AllBeta=true,EnableExternalCerts=false",
	"v1.8.3": "AllAlpha=true,AllBeta=true,EnableExternalCerts=false",
	"v1.9.0": "AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false"}

func all() []featuregate.Feature {
	var all []featuregate.Feature
	for gate := range features.Known() {
		all = append(all, gate)
	}
	return all
}

// effective are the gates in force with what is carried over from an installation, and the list.
func effective(t *testing.T, image, list string, used map[featuregate.Feature]bool) (*features.Gates, string, []string) {
	t.Helper()
	r := newReading(image, nil)
	r.used = used
	carried, notes := r.gates(list, all())
	gates, err := features.Parse(carried)
	if err != nil {
		t.Fatal(err)
	}
	return gates, carried, notes
}

// OPS-187 (part): OpenKruise's own manifests say AllAlpha=true. What it means is what that release has, so
// that nothing is turned on that was not on; no certificates of somebody else are waited for, and no kind is
// watched for which rights are missing.
func TestManifestsOfEveryReleaseMeanWhatTheyMeantThere(t *testing.T) {
	for tag, list := range manifestGates {
		gates, carried, notes := effective(t, "registry:5000/openkruise/kruise-manager:"+tag, list, nil)
		if strings.Contains(carried, "AllAlpha") {
			t.Errorf("%s: carried: got %q, want it not to contain %q", tag, carried, "AllAlpha")
		}
		if strings.Contains(carried, "AllBeta") {
			t.Errorf("%s: carried: got %q, want it not to contain %q", tag, carried, "AllBeta")
		}
		for _, gate := range []featuregate.Feature{features.EnableExternalCerts, features.ResourceDistributionGate, features.StatefulSetAutoResizePVCGate} {
			if gates.Enabled(gate) {
				t.Errorf("%s: %s is on: %s", tag, gate, carried)
			}
		}
		for _, gate := range []featuregate.Feature{features.KruisePodReadinessGate, features.CloneSetShortHash, features.PodUnavailableBudgetUpdateGate,
			features.ImagePullJobGate, features.PreDownloadImageForInPlaceUpdate, features.ResourcesDeletionProtection} {
			if !gates.Enabled(gate) {
				t.Errorf("%s: %s is off: %s", tag, gate, carried)
			}
		}
		if gates.Enabled(features.TemplateNoDefaults) == (tag == "v1.9.0") {
			t.Errorf("%s: TemplateNoDefaults: %s", tag, carried)
		}
		for gate, since := range map[featuregate.Feature]string{features.StatefulSetStartOrdinal: "v1.7", features.InPlaceWorkloadVerticalScaling: "v1.7.5",
			features.SidecarTerminator: "v1.4", features.InPlacePodVerticalScaling: "v1.9", features.EnableSortSidecarContainerByName: "v1.9"} {
			if got := gates.Enabled(gate); got != (tag >= since) {
				t.Errorf("%s: the gate is on: got %t, want %t\n%s\n%s", tag, got, tag >= since, gate, carried)
			}
		}
		if !slices.ContainsFunc(notes, func(s string) bool { return strings.HasPrefix(s, "AllAlpha=true means there: ") }) {
			t.Errorf("%s: it is not told what AllAlpha means: %q", tag, notes)
		}
	}
}

// OPS-187: gates, whoever has set them, are what they were.
func TestGatesAreWhatTheyWere(t *testing.T) {
	on := func(gates ...featuregate.Feature) map[featuregate.Feature]bool {
		used := map[featuregate.Feature]bool{}
		for _, gate := range gates {
			used[gate] = true
		}
		return used
	}
	const kruise = "openkruise/kruise-manager:"
	for name, test := range map[string]struct {
		image, list string
		used        map[featuregate.Feature]bool
		on, off     []featuregate.Feature
		note        string
	}{
		"nothing named, 1.8": {image: kruise + "v1.8.3", off: []featuregate.Feature{features.StatefulSetStartOrdinal, features.ResourcesDeletionProtection,
			features.ImagePullJobGate, features.RecreatePodWhenChangeVCTInCloneSetGate, features.InPlaceWorkloadVerticalScaling},
			note: "feature gates that nobody named stay as they are there, and differ from the defaults of Afloat: "},
		"nothing named, 1.7.4": {image: kruise + "v1.7.4", on: []featuregate.Feature{features.ResourcesDeletionProtection},
			off: []featuregate.Feature{features.InPlaceWorkloadVerticalScaling}},
		"1.7.5 has what 1.8 has": {image: kruise + "v1.7.5", off: []featuregate.Feature{features.ResourcesDeletionProtection}},
		"1.3 pulls images and distributes without a gate": {image: kruise + "v1.3.0", used: on(features.ResourceDistributionGate),
			on: []featuregate.Feature{features.ImagePullJobGate, features.ResourceDistributionGate}, off: []featuregate.Feature{features.WorkloadSpread}},
		"1.3 without a ResourceDistribution": {image: kruise + "v1.3.0", off: []featuregate.Feature{features.ResourceDistributionGate},
			note: "feature gate ResourceDistributionGate is on there without being named, and is not turned on, because there is no ResourceDistribution: name it if you want it"},
		"ResourceDistributions that nobody looked at": {image: kruise + "v1.6.4", used: on(features.ResourceDistributionGate),
			off: []featuregate.Feature{features.ResourceDistributionGate}},
		"ResourceDistributions by AllAlpha": {image: kruise + "v1.6.4", list: "AllAlpha=true", used: on(features.ResourceDistributionGate),
			on: []featuregate.Feature{features.ResourceDistributionGate}},
		"named": {image: kruise + "v1.6.4", list: "ResourceDistributionGate=true,EnableExternalCerts=true",
			on: []featuregate.Feature{features.ResourceDistributionGate, features.EnableExternalCerts}},
		"certificates of somebody else by AllAlpha": {image: kruise + "v1.7.3", list: "AllAlpha=true", used: on(features.EnableExternalCerts),
			on: []featuregate.Feature{features.EnableExternalCerts}},
		"a release that had no such certificates": {image: kruise + "v1.6.4", list: "AllAlpha=true", used: on(features.EnableExternalCerts),
			off: []featuregate.Feature{features.EnableExternalCerts}},
		"a named gate wins over its stage": {image: kruise + "v1.8.0", list: "CloneSetShortHash=false,AllAlpha=true",
			off: []featuregate.Feature{features.CloneSetShortHash}, on: []featuregate.Feature{features.KruisePodReadinessGate}},
		"a stage that is off": {image: kruise + "v1.6.4", list: "AllAlpha=false", off: []featuregate.Feature{features.WorkloadSpread,
			features.ResourcesDeletionProtection}, note: "AllAlpha=false means there: "},
		"pulls in advance force jobs": {image: kruise + "v1.8.0", list: "PreDownloadImageForInPlaceUpdate=true",
			on: []featuregate.Feature{features.ImagePullJobGate}},
		"newer than what is known": {image: kruise + "v1.12.1", off: []featuregate.Feature{features.StatefulSetStartOrdinal},
			note: "feature gates are read like those of 1.9.0, because 1.12.1 is newer than what is known"},
		"no release in the tag": {image: "mirror/kruise:prod@sha256:ab", list: "AllAlpha=true",
			on: []featuregate.Feature{features.KruisePodReadinessGate}, off: []featuregate.Feature{features.EnableExternalCerts},
			note: "feature gates of which the releases differ, so that they get the defaults of Afloat: "},
	} {
		t.Run(name, func(t *testing.T) {
			gates, carried, notes := effective(t, test.image, test.list, test.used)
			for _, gate := range append(test.on, test.off...) {
				if gates.Enabled(gate) != slices.Contains(test.on, gate) {
					t.Errorf("%s is %v: %s", gate, gates.Enabled(gate), carried)
				}
			}
			if !slices.ContainsFunc(notes, func(s string) bool { return strings.HasPrefix(s, test.note) }) {
				t.Errorf("not told: %s, but %q", test.note, notes)
			}
		})
	}
}

// OPS-198: an image whose tag does not tell the release is known by its definitions, as far as these tell.
func TestReleaseByDefinitions(t *testing.T) {
	definition := func(name, version string) *unstructured.Unstructured {
		d := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{map[string]any{"name": version}}}}}
		d.SetGroupVersionKind(installation.Definitions)
		d.SetName(name + ".apps.kruise.io")
		return d
	}
	for name, test := range map[string]struct {
		image       string
		definitions []*unstructured.Unstructured
		want        []string
	}{
		"by the tag":         {"a:5000/b:v1.8.4-arm64", nil, []string{"1.7.5"}},
		"a port is no tag":   {"a:1.8/b", []*unstructured.Unstructured{definition("daemonsets", "v1alpha1")}, []string{"1.3.0", "1.4.0"}},
		"lists of images":    {"b:test", []*unstructured.Unstructured{definition("imagelistpulljobs", "v1alpha1")}, []string{"1.5.0", "1.6.0", "1.7.0", "1.7.5"}},
		"the newest":         {"b:main", []*unstructured.Unstructured{definition("imagelistpulljobs", "v1beta1"), definition("daemonsets", "v1beta1")}, []string{"1.9.0"}},
		"what never existed": {"b:2.0.0", []*unstructured.Unstructured{definition("daemonsets", "v1beta1")}, readGates().releases},
	} {
		if diff := cmp.Diff(test.want, newReading(test.image, test.definitions).releases); diff != "" {
			t.Errorf("%s: releases (-want +got):\n%s", name, diff)
		}
	}
}
