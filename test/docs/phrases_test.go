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

// phrases are parts of messages that scripts and other tools look for, and the file in internal that makes each. "…" stands for what differs.
var phrases = map[string]string{
	"(forbidden by ResourcesProtectionDeletion)":            "admission/protection/guard.go",
	"PodUnavailableBudget prevents pod deletion":            "admission/protection/teller.go",
	"podName can not be empty":                              "kinds/containerrecreate/admit.go",
	"containers list can not be null":                       "kinds/containerrecreate/admit.go",
	"activeDeadlineSeconds can not be less than":            "kinds/containerrecreate/admit.go",
	"must be non-negative integer":                          "kinds/containerrecreate/admit.go",
	"unknown failurePolicy":                                 "kinds/containerrecreate/admit.go",
	"no found Pod named":                                    "admission/containerrecreate.go",
	"not allowed to recreate containers in an inactive Pod": "kinds/containerrecreate/admit.go",
	"not allowed to recreate containers in a pending Pod":   "kinds/containerrecreate/admit.go",
	"can not recreate … multi times":                        "kinds/containerrecreate/admit.go",
	"container … not found in Pod":                          "kinds/containerrecreate/admit.go",
	"not found … containerStatus in Pod Status":             "kinds/containerrecreate/admit.go",
	"spec of ContainerRecreateRequest is immutable":         "kinds/containerrecreate/admit.go",
	"not allowed to update immutable label":                 "kinds/containerrecreate/admit.go",
	"not allowed to update immutable annotation":            "kinds/containerrecreate/admit.go",
	"pod has gone": "engine/restart/restart.go",
	"daemon has not responded for a long time":                   "engine/restart/restart.go",
	"recreating has exceeded the activeDeadlineSeconds":          "engine/restart/restart.go",
	"failed to find runtime service":                             "node/restart/controller.go",
	"not found container on Node":                                "node/restart/evaluate.go",
	"kill container error":                                       "node/restart/controller.go",
	"node has not responded for a long time":                     "kinds/imagepull/nodeimage_plan.go",
	"pulling exceeds the activeDeadlineSeconds":                  "kinds/imagepull/nodeimage_plan.go",
	"job is running, no progress":                                "kinds/imagepull/job_plan.go",
	"job is running, progress … %":                               "kinds/imagepull/job_plan.go",
	"job has completed":                                          "kinds/imagepull/job_plan.go",
	"resource apiVersion, kind, and name are immutable":          "kinds/resourcedistribution/validate.go",
	"target has an object of the same namespace, group, version": "kinds/resourcedistribution/plan.go",
}

// CRR-059 to CRR-061 (part), IMG-058 (part), IMG-094 (part), RD-033 (part), DP-018 (part): the texts that others match stay as they are, each where it is made, and the
// manual has them all.
func TestTextsThatScriptsMatchStay(t *testing.T) {
	for phrase, file := range phrases {
		source, err := os.ReadFile(filepath.Join("../../internal", file))
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for part := range strings.SplitSeq(phrase, "…") {
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
		}
		if made := regexp.MustCompile(`"[^"\n]*` + strings.Join(parts, `[^"\n]*`)); !made.Match(source) {
			t.Errorf("%s does not say %q any more: tools look for that", file, phrase)
		}
	}
	manual, err := os.ReadFile("../../docs/manual/compatibility.md")
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
