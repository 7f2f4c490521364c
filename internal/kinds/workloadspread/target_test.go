package workloadspread

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/afloat-project/afloat/api/pub"
)

// WS-011, WS-012
func TestQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		most    *intstr.IntOrString
		desired int32
		want    int32
		bad     bool
	}{
		"absent is unlimited":          {nil, 10, Unlimited, false},
		"a number":                     {new(intstr.FromInt32(3)), 10, 3, false},
		"none at all":                  {new(intstr.FromInt32(0)), 10, 0, false},
		"negative":                     {new(intstr.FromInt32(-1)), 10, 0, true},
		"a percentage is rounded up":   {new(intstr.FromString("33%")), 10, 4, false},
		"of nothing":                   {new(intstr.FromString("33%")), 0, 0, false},
		"all":                          {new(intstr.FromString("100%")), 7, 7, false},
		"of many":                      {new(intstr.FromString("99%")), 2147483647, 2126008811, false},
		"a fraction of a percent":      {new(intstr.FromString("0.2%")), 10, 0, true},
		"a percentage with a fraction": {new(intstr.FromString("50.2%")), 10, 0, true},
		"a bare number as text":        {new(intstr.FromString("30")), 10, 0, true},
		"more than all":                {new(intstr.FromString("101%")), 10, 0, true},
		"too many digits":              {new(intstr.FromString("99999999999%")), 10, 0, true},
		"a sign":                       {new(intstr.FromString("+5%")), 10, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Quota(tt.most, tt.desired)
			if got != tt.want {
				t.Errorf("got %d, want %d\n%v", got, tt.want, err)
			}
			if (err != nil) != tt.bad {
				t.Errorf("an error: got %t, want %t\n%v", err != nil, tt.bad, err)
			}
		})
	}
}

// WS-015, WS-202
func TestReplicas(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"replicas": int64(3), "text": "3", "float": 3.0, "nothing": nil, "huge": int64(1) << 40,
		"groups": []any{map[string]any{"replicas": int64(1)}, map[string]any{"replicas": int64(5)}}}}
	for name, tt := range map[string]struct {
		paths []string
		want  int32
		bad   bool
	}{
		"one":                       {[]string{"spec.replicas"}, 3, false},
		"the sum, an empty path 0":  {[]string{"spec.replicas", "", "spec.groups.1.replicas"}, 8, false},
		"none":                      {nil, 0, false},
		"out of range":              {[]string{"spec.groups.2.replicas"}, 0, true},
		"below the range":           {[]string{"spec.groups.-1.replicas"}, 0, true},
		"not a number as index":     {[]string{"spec.groups.x.replicas"}, 0, true},
		"a missing member":          {[]string{"spec.none"}, 0, true},
		"text":                      {[]string{"spec.text"}, 0, true},
		"a float":                   {[]string{"spec.float"}, 0, true},
		"an object":                 {[]string{"spec"}, 0, true},
		"null":                      {[]string{"spec.nothing"}, 0, true},
		"beyond an integer":         {[]string{"spec.replicas.more"}, 0, true},
		"more than replicas can be": {[]string{"spec.huge"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Replicas(object, tt.paths)
			if got != tt.want {
				t.Errorf("got %d, want %d\n%v", got, tt.want, err)
			}
			if (err != nil) != tt.bad {
				t.Errorf("an error: got %t, want %t\n%v", err != nil, tt.bad, err)
			}
		})
	}
}

// WS-061, WS-063: against counting.
func TestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []any
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			first := rapid.IntRange(0, 12).Draw(t, "first")
			entries = append(entries, int64(first))
			if rapid.Bool().Draw(t, "range") {
				entries[len(entries)-1] = dashed(first, first+rapid.IntRange(0, 4).Draw(t, "more"))
			}
		}
		start := int64(rapid.IntRange(0, 5).Draw(t, "start"))
		_, from, reserved, err := ReadAdvanced(map[string]any{"spec": map[string]any{"ordinals": map[string]any{"start": start},
			"reserveOrdinals": entries}})
		if err != nil {
			t.Fatal(err)
		}
		target := &Target{Start: from, Reserved: reserved}
		ordinal := rapid.IntRange(0, 20).Draw(t, "ordinal")
		want := 0
		for i := int(start); i < ordinal; i++ {
			if !contains(entries, i) {
				want++
			}
		}
		if got := target.Rank(dashed(0, ordinal)); got != want { // "0-<ordinal>" is a name with that ordinal
			t.Fatalf("rank %d, not %d of %d from %d without %v", got, want, ordinal, start, entries)
		}
	})
	for _, name := range []string{"web", "web-", "web-x", "web-1x", "web-99999999999999"} {
		if got := (&Target{}).Rank(name); got != -1 {
			t.Errorf("%s: rank in no target: got %d, want -1", name, got)
		}
	}
	for _, bad := range []any{"5", "a-b", "1-2-3", "5-2", int64(-1), true} {
		if _, _, _, err := ReadAdvanced(map[string]any{"spec": map[string]any{"reserveOrdinals": []any{bad}}}); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func contains(entries []any, i int) bool {
	for _, entry := range entries {
		if r, ok := ordinals(entry); ok && r.First <= i && i <= r.Last {
			return true
		}
	}
	return false
}

// WS-081 to WS-083
func TestVersion(t *testing.T) {
	pod := func(kind string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "any/v1", Kind: kind, Name: "x", Controller: new(true)}}
		}
		return p
	}
	hashes := map[string]string{pub.PodTemplateHash: "abc", pub.ControllerRevisionHash: "web-def"}
	for name, tt := range map[string]struct {
		flag string
		pod  *corev1.Pod
		want string
	}{
		"of a ReplicaSet":   {"deployment", pod("ReplicaSet", hashes), "abc"},
		"whatever the case": {" Deployment , x", pod("replicaset", hashes), "abc"},
		"the revision where no hash is": {"cloneset", pod("CloneSet", map[string]string{pub.ControllerRevisionHash: "web-def"}),
			"def"},
		"a short revision":                   {"cloneset", pod("CloneSet", map[string]string{pub.ControllerRevisionHash: "def"}), "def"},
		"neither":                            {"cloneset", pod("CloneSet", nil), VersionIgnored},
		"not enabled":                        {"deployment,replicaset", pod("CloneSet", hashes), VersionIgnored},
		"no controller":                      {"deployment", pod("", hashes), VersionIgnored},
		"nothing enabled":                    {"", pod("ReplicaSet", hashes), VersionIgnored},
		"replicaset does not imply the rest": {"replicaset", pod("ReplicaSet", hashes), "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseVersioned(tt.flag).Of(tt.pod); got != tt.want {
				t.Errorf("%s, not %s", got, tt.want)
			}
		})
	}
	if ParseVersioned("replicaset").Has("Deployment") {
		t.Error("deployment implies replicaset, and not the other way round: replicaset has Deployment")
	}
	if !ParseVersioned("deployment").Has("ReplicaSet") {
		t.Error("deployment implies replicaset, and not the other way round: deployment has no ReplicaSet")
	}
}

// WS-024, WS-025, WS-027, WS-206 (part): what may be written in the list, and what is if it does not say.
func TestAllowList(t *testing.T) {
	list, err := ParseAllowList(`{"workloads":[{"Group":"kubeflow.org","Kind":"TFJob"},
		{"group":"game.kruise.io","version":"v1alpha1","kind":"GameServerSet","subResources":[{"Group":"apps.kruise.io","Version":"v1beta1","Kind":"StatefulSet"},{"Group":"x","Kind":"Middle"}],
		 "replicasPath":"spec.replicas","deletionCost":true}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := list.Workload(schema.GroupKind{Group: "kubeflow.org", Kind: "TFJob"}); !ok {
		t.Error("TFJob is listed")
	} else if job, _ := list.Workload(schema.GroupKind{Group: "kubeflow.org", Kind: "TFJob"}); job.DeletionCost {
		t.Error("deletion costs are written though nobody asked for them")
	}
	game, ok := list.Workload(schema.GroupKind{Group: "game.kruise.io", Kind: "GameServerSet"})
	if !ok {
		t.Errorf("ok: got false, want true\n%+v", game)
	} else if game.ReplicasPath != "spec.replicas" {
		t.Errorf("replicas path of the game: got %q, want %q\n%+v", game.ReplicasPath, "spec.replicas", game)
	} else if !game.DeletionCost {
		t.Errorf("cost of deletion of the game: got false, want true\n%+v", game)
	} else if game.Version != "v1alpha1" {
		t.Errorf("version of the game: got %q, want %q\n%+v", game.Version, "v1alpha1", game)
	} else if len(game.SubResources) != 2 {
		t.Errorf("number of sub resources of the game: got %d, want 2\n%+v", len(game.SubResources), game)
	}
	for kind, want := range map[schema.GroupKind]bool{{Group: "x", Kind: "Middle"}: true, {Group: "kubeflow.org", Kind: "TFJob"}: true,
		{Group: "y", Kind: "Middle"}: false, {}: false} {
		if list.Known(kind) != want {
			t.Errorf("kind %v is known: got %t, want %t", kind, !want, want)
		}
	}
	if list, err := ParseAllowList(""); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, list)
	} else if len(list.Workloads) != 0 {
		t.Errorf("number of workloads of the list: got %d, want 0\n%v\n%v", len(list.Workloads), list, err)
	}
	if _, err := ParseAllowList("{"); err == nil {
		t.Error("half an object is taken")
	}
}

// WS-096, WS-141
func TestPlacement(t *testing.T) {
	if diff := cmp.Diff(`{"name":"shop","subset":"a"}`, pub.Placement{Name: "shop", Subset: "a"}.String()); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(`{"name":"shop","subset":"a","uid":"u"}`, pub.Placement{Name: "shop", Subset: "a", UID: "u"}.String()); diff != "" {
		t.Errorf("placement with a UID (-want +got):\n%s", diff)
	}
	for text, want := range map[string]bool{`{"name":"shop","subset":"a"}`: true, `{"name":"shop"}`: false, `{"subset":"a"}`: false,
		`x`: false, `[]`: false, ``: false, `null`: false} {
		if _, ok := pub.ParsePlacement(map[string]string{pub.MatchedWorkloadSpread: text}); ok != want {
			t.Errorf("%s: ok: got %t, want %t", text, ok, want)
		}
	}
	if _, ok := pub.ParsePlacement(nil); ok {
		t.Error("no annotation is a placement")
	}
}

func dashed(first, last int) string { return strconv.Itoa(first) + "-" + strconv.Itoa(last) }
