package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// phrases are parts of messages that scripts and other tools look for, and the package in internal that makes
// each. "…" stands for what differs.
var phrases = map[string]string{
	"(forbidden by ResourcesProtectionDeletion)":            "admission/protection",
	"PodUnavailableBudget prevents pod deletion":            "admission/protection",
	"podName can not be empty":                              "kinds/containerrecreate",
	"containers list can not be null":                       "kinds/containerrecreate",
	"activeDeadlineSeconds can not be less than":            "kinds/containerrecreate",
	"must be non-negative integer":                          "kinds/containerrecreate",
	"unknown failurePolicy":                                 "kinds/containerrecreate",
	"no found Pod named":                                    "kinds/containerrecreate/controller",
	"not allowed to recreate containers in an inactive Pod": "kinds/containerrecreate",
	"not allowed to recreate containers in a pending Pod":   "kinds/containerrecreate",
	"can not recreate … multi times":                        "kinds/containerrecreate",
	"container … not found in Pod":                          "kinds/containerrecreate",
	"not found … containerStatus in Pod Status":             "kinds/containerrecreate",
	"spec of ContainerRecreateRequest is immutable":         "kinds/containerrecreate",
	"not allowed to update immutable label":                 "kinds/containerrecreate",
	"not allowed to update immutable annotation":            "kinds/containerrecreate",
	"pod has gone": "engine/restart",
	"daemon has not responded for a long time":                   "engine/restart",
	"recreating has exceeded the activeDeadlineSeconds":          "engine/restart",
	"failed to find runtime service":                             "node/restart",
	"not found container on Node":                                "node/restart",
	"kill container error":                                       "node/restart",
	"node has not responded for a long time":                     "kinds/imagepull",
	"pulling exceeds the activeDeadlineSeconds":                  "kinds/imagepull",
	"job is running, no progress":                                "kinds/imagepull",
	"job is running, progress … %":                               "kinds/imagepull",
	"job has completed":                                          "kinds/imagepull",
	"resource apiVersion, kind, and name are immutable":          "kinds/resourcedistribution",
	"target has an object of the same namespace, group, version": "kinds/resourcedistribution",
}

// CRR-059 to CRR-061 (part), IMG-058 (part), IMG-094 (part), RD-033 (part), DP-018 (part): the texts that
// others match stay as they are, each where it is made, and the manual has them all.
func TestTextsThatScriptsMatchStay(t *testing.T) {
	for phrase, folder := range phrases {
		files, err := filepath.Glob(filepath.Join("../../internal", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var source []byte
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source = append(source, text...)
		}
		var parts []string
		for part := range strings.SplitSeq(phrase, "…") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		if made := regexp.MustCompile(`"[^"\n]*` + strings.Join(parts, `[^"\n]*`)); !made.Match(source) {
			t.Errorf("%s does not say %q any more: tools look for that", folder, phrase)
		}
	}
	manual, err := os.ReadFile("../../docs/operate/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "\n## Texts that scripts match\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		told = append(told, row[1])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(phrases)), slices.Sorted(slices.Values(told))); diff != "" {
		t.Error(diff)
	}
}
