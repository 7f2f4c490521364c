package scaledown

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

func server(t *testing.T, version, cloneSet, statefulSet string) *plugintest.Server {
	s := plugintest.NewIn(t, "shop", version,
		"{apiVersion: apps.kruise.io/"+version+", kind: CloneSet, metadata: {name: web}, spec: {"+cloneSet+"selector: {matchLabels: {app: web}}}}",
		"{apiVersion: apps.kruise.io/"+version+", kind: StatefulSet, metadata: {name: led-ger}, spec: {"+statefulSet+"selector: {matchLabels: {app: db}}}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: native}, spec: {selector: {matchLabels: {app: web}}}}")
	for _, name := range []string{"web-a", "web-b", "web-c", "led-ger-0", "led-ger-1", "led-ger-2", "led-ger-3", "led-ger-4", "stranger"} {
		label, owner := "web", "uid-cloneset-web"
		if strings.HasPrefix(name, "led") {
			label, owner = "db", "uid-statefulset-led-ger"
		}
		if name == "stranger" {
			owner = "uid-of-another"
		}
		s.Put(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: %s}, "+
			"ownerReferences: [{apiVersion: apps.kruise.io/%s, kind: CloneSet, name: web, uid: %s, controller: true}]}}", name, label, version, owner))
	}
	s.Change(t, "pods", "web-c", func(o map[string]any) { o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z" })
	return s
}

// OPS-166: one patch names the pods and lowers the replicas; names are trimmed and counted once; every pod
// must be one of the workload's; replicas do not go below 0. Pods of a StatefulSet are marked, and their
// ordinals do not come back.
func TestOnePatchNamesThePodsAndLowersTheReplicas(t *testing.T) {
	t.Run("conflict", testConflict)
	tests := map[string]struct{ cloneSet, statefulSet, lines string }{
		"plain": {"replicas: 3, ", "replicas: 5, ", `
			cloneset/web --pods=web-a,web-b
			cloneset/web --pods=web-a
			cloneset web --pods=stranger,nothing,web-c
			asts/led-ger --pods=led-ger-1,led-ger-4,led-ger-2
			asts/led-ger --pods=led-ger-4
			deploy/native --pods=web-a
			clone/web
			clone/web --pods=,
			clone/nothing --pods=web-a
			clone/web asts/led-ger --pods=web-a`},
		"blanks": {"replicas: 3, scaleStrategy: {podsToDelete: [gone], maxUnavailable: 1}, ", "",
			"cloneset/web --pods=_web-a_,web-a,,web-b --field-manager=me"},
		"dry": {"replicas: 3, ", "replicas: 5, ", `
			clone/web --pods=web-a --dry-run=client -o yaml
			clone/web --pods=web-a --dry-run=server
			asts/led-ger --pods=led-ger-0 --dry-run=server`},
		"too many":  {"replicas: 1, ", "replicas: 5, ", "clone/web --pods=web-a,web-b"},
		"default":   {"", "", "clone/web --pods=web-a\nasts/led-ger --pods=led-ger-0"},
		"highest":   {"", "replicas: 5, ", "asts/led-ger --pods=led-ger-4,led-ger-3"},
		"reserving": {"", `replicas: 3, ordinals: {start: 1}, reserveOrdinals: ["2-3", 9], `, "asts/led-ger --pods=led-ger-1\nasts/led-ger --pods=led-ger-0"},
	}
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		for name, tt := range tests {
			t.Run(version+" "+name, func(t *testing.T) {
				s := server(t, version, tt.cloneSet, tt.statefulSet)
				var all string
				for _, line := range strings.Split(strings.TrimSpace(tt.lines), "\n") {
					words := strings.Fields(line)
					for i := range words {
						words[i] = strings.ReplaceAll(words[i], "_", " ")
					}
					all += s.Play(t, New, append([]string{"scaledown"}, words...)...)
				}
				golden.Compare(t, strings.ReplaceAll(name, " ", "-")+"-"+version, all)
			})
		}
	}
}

// testConflict: who was faster is not overwritten: the patch is made anew from what he wrote, as often as
// needed, and an error in the end.
func testConflict(t *testing.T) {
	s := server(t, "v1beta1", "replicas: 3, ", "")
	faster := 2
	s.Before = func(r plugintest.Request) error {
		if faster--; faster >= 0 {
			s.Change(t, "clonesets", "web", func(o map[string]any) {
				o["spec"].(map[string]any)["replicas"] = int64(10 + faster)
				o["spec"].(map[string]any)["scaleStrategy"] = map[string]any{"podsToDelete": []any{"another"}}
			})
		}
		return nil
	}
	golden.Compare(t, "conflict", s.Play(t, New, "scaledown", "clone/web", "--pods=web-a"))
	faster = 1000
	err := s.Run(t, New, "scaledown", "clone/web", "--pods=web-b").Err
	if err == nil || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("conflicts without end: got %v, want an error that says so", err)
	}
	s.Before = func(plugintest.Request) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no rights"))
	}
	if err := s.Run(t, New, "scaledown", "clone/web", "--pods=web-b").Err; !apierrors.IsForbidden(err) {
		t.Errorf("without rights: got %v, want Forbidden", err)
	}
}
