package migrate

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const (
	nativeSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, labels: {team: shop}, annotations: {note: kept, kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec:
  replicas: 3
  serviceName: db
  podManagementPolicy: Parallel
  revisionHistoryLimit: 5
  minReadySeconds: 9
  ordinals: {start: 1}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1, maxUnavailable: 2}}
  template: {metadata: {labels: {app: db}}, spec: {fieldOfTomorrow: 1, containers: [{name: app, image: i}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}, status: {phase: Pending}}]
status: {observedGeneration: 1, replicas: 3}
`
	ownSet = `
apiVersion: apps.kruise.io/v1beta1
kind: StatefulSet
metadata: {name: db, annotations: {note: kept, apps.kruise.io/v1beta1-only-fields: "{}"}}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  lifecycle: {preDelete: {labelsHandler: {a: b}}}
  scaleStrategy: {maxUnavailable: 2}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1, podUpdatePolicy: InPlaceIfPossible, minReadySeconds: 9, paused: false}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: app, image: i}]}}
status: {observedGeneration: 1, replicas: 3}
`
	nativeDaemons = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: db, annotations: {deprecated.daemonset.template.generation: "4"}}
spec:
  minReadySeconds: 9
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: app, image: i}]}}
status: {observedGeneration: 1, desiredNumberScheduled: 3}
`
	ownDaemons = `
apiVersion: apps.kruise.io/v1beta1
kind: DaemonSet
metadata: {name: db}
spec:
  minReadySeconds: 9
  burstReplicas: 250
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: Standard, maxUnavailable: 10%,
    partition: 50%, selector: {matchLabels: {a: b}}}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: app, image: i}]}}
status: {observedGeneration: 1, desiredNumberScheduled: 3}
`
)

// cluster has a workload with three pods, and what of Kubernetes and the manager gives up and takes over
// pods, a step whenever somebody looks.
type cluster struct {
	*plugintest.Server
	t              *testing.T
	source, target string
	args           []string

	lock sync.Mutex
	// slow is for how many looks nothing happens, and lazy tells that nothing is taken over.
	slow int
	lazy bool
}

// wait sets for how many looks nothing happens, and whether nothing is taken over.
func (c *cluster) wait(slow int, lazy bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.slow, c.lazy = slow, lazy
}

func newCluster(t *testing.T, version, manifest string) *cluster {
	t.Chdir(t.TempDir())
	s := plugintest.NewIn(t, "shop", version, strings.ReplaceAll(manifest, "apps.kruise.io/v1beta1\n", "apps.kruise.io/"+version+"\n"))
	object := plugintest.Object(t, manifest)
	resource := strings.ToLower(object.GetKind()) + "s."
	c := &cluster{Server: s, t: t, source: resource + "apps", target: resource + "apps.kruise.io", slow: 1,
		args: []string{"migrate", object.GetKind(), "--from=apps", "-n", "shop", "--src-name=db"}}
	if strings.HasPrefix(object.GetAPIVersion(), "apps.kruise.io") {
		c.source, c.target = c.target, c.source
		c.args[2] = "--to=apps"
	}
	owner := fmt.Sprintf("ownerReferences: [{apiVersion: %s, kind: %s, name: db, uid: %s, controller: true}]", object.GetAPIVersion(), object.GetKind(),
		c.Get(t, c.source, "db").GetUID())
	hash := "db-new"
	if object.GetKind() == "DaemonSet" {
		hash = "new"
	}
	revision := "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: %s, labels: {controller-revision-hash: %s}, %s}, revision: %d}"
	s.Put(t, fmt.Sprintf(revision, "db-old", "old", owner, 1))
	s.Put(t, fmt.Sprintf(revision, "db-new", hash, owner, 2))
	s.Put(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: uid-of-shop}}")
	for i := 1; i <= 3; i++ {
		s.Put(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: db-%d, labels: {app: db, controller-revision-hash: %s}, %s}, "+
			"status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}", i, hash, owner))
	}
	s.BeforeRead = func(r plugintest.Request) error {
		if r.Name == "" {
			return nil
		}
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.slow--; c.slow >= 0 {
			return nil
		}
		source, target := c.Get(t, c.source, "db"), c.Get(t, c.target, "db")
		switch {
		case r.Resource == c.source && source != nil && source.GetDeletionTimestamp() != nil:
			c.own(nil)
			c.Delete(t, c.source, "db")
		case r.Resource == c.target && target != nil && !c.lazy:
			c.own(target)
			c.Change(t, c.target, "db", func(o map[string]any) {
				o["status"] = map[string]any{"observedGeneration": int64(1), "desiredNumberScheduled": int64(3), "updatedReplicas": int64(3),
					"updatedNumberScheduled": int64(3)}
			})
		}
		return nil
	}
	return c
}

// changeSource changes the source. Its controller sees at once what is changed of the spec.
func (c *cluster) changeSource(edit func(map[string]any)) {
	before := c.Get(c.t, c.source, "db").Object["spec"]
	c.Change(c.t, c.source, "db", func(o map[string]any) {
		if edit(o); !cmp.Equal(before, o["spec"]) {
			o["status"].(map[string]any)["observedGeneration"] = metadata(o)["generation"].(int64) + 1
		}
	})
}

// own makes pods those of a workload, or of nobody, if that is what they wait for.
func (c *cluster) own(by *unstructured.Unstructured) {
	for i := 1; i <= 3; i++ {
		c.Change(c.t, "pods", fmt.Sprintf("db-%d", i), func(o map[string]any) {
			pod := &unstructured.Unstructured{Object: o}
			switch {
			case by == nil:
				pod.SetOwnerReferences(nil)
			case pod.GetOwnerReferences() == nil:
				yes := true
				pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: by.GetAPIVersion(), Kind: by.GetKind(), Name: by.GetName(), UID: by.GetUID(),
					Controller: &yes}})
			}
		})
	}
}

// migrated says what is not as it should be at the end.
func (c *cluster) migrated(pods []*unstructured.Unstructured) error {
	target := c.Get(c.t, c.target, "db")
	if c.Get(c.t, c.source, "db") != nil || target == nil {
		return errors.New("the source is there, or the target is not")
	}
	for _, before := range pods {
		now := c.Get(c.t, "pods", before.GetName())
		if now == nil || now.GetUID() != before.GetUID() || len(now.GetOwnerReferences()) != 1 || now.GetOwnerReferences()[0].UID != target.GetUID() {
			return fmt.Errorf("pod %s is not the target's, or another one", before.GetName())
		}
	}
	left, err := filepath.Glob("*.yaml")
	kept, _ := filepath.Glob("*.done")
	if err != nil || len(left) != 0 || len(kept) > 1 {
		return fmt.Errorf("files %v, %v", left, kept)
	}
	return nil
}

func (c *cluster) pods() (all []*unstructured.Unstructured) {
	for i := 1; i <= 3; i++ {
		all = append(all, c.Get(c.t, "pods", fmt.Sprintf("db-%d", i)))
	}
	return all
}

var manifests = map[string]string{"statefulset-from": nativeSet, "statefulset-to": ownSet, "daemonset-from": nativeDaemons, "daemonset-to": ownDaemons}

// StatefulSets and DaemonSets of Kubernetes become those of apps.kruise.io with the same pods, and back; a
// dry run says what would be done and does nothing; the old manifest is in a file, of which the object could
// be made again.
func TestTakeOver(t *testing.T) {
	for name, manifest := range manifests {
		t.Run(name, func(t *testing.T) {
			testdata, err := filepath.Abs("testdata")
			if err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, "v1beta1", manifest)
			pods := c.pods()
			var text string
			for _, dry := range []string{"--dry-run=client", "--dry-run=server", "--dry-run=client -o=yaml"} {
				text += c.Play(t, quick, append(c.args, strings.Fields(dry)...)...)
			}
			if made := c.Get(t, c.target, "db"); made != nil {
				t.Errorf("a dry run made %v", made)
			}
			if c.Get(t, c.source, "db").GetDeletionTimestamp() != nil {
				t.Error("a dry run deleted the source")
			}
			text += c.Play(t, quick, c.args...)
			if err := c.migrated(pods); err != nil {
				t.Errorf("migration: %v", err)
			}
			kept, err := os.ReadFile("shop.db." + c.source + ".yaml.done")
			if err != nil {
				t.Errorf("reading what was kept: %v", err)
			}
			text += string(kept) + "\n" + c.Play(t, quick, c.args...)
			t.Chdir(filepath.Dir(testdata))
			golden.Compare(t, "takeover-"+name, text)
		})
	}
}

// The command may die with any request, before it arrives or after it was carried out: run again it goes on,
// and no pod is lost.
func TestTakeOverInterrupted(t *testing.T) {
	for name, manifest := range manifests {
		t.Run(name, func(t *testing.T) {
			for _, arrives := range []bool{true, false} {
				for n := 1; ; n++ {
					c := newCluster(t, "v1beta1", manifest)
					pods := c.pods()
					survived := dies(t, c.Server, n, arrives, c.args)
					if err := c.migrated(pods); err != nil {
						t.Fatalf("died with request %d, arrives %t: %v", n, arrives, err)
					}
					if survived {
						if n < 8 {
							t.Fatalf("only %d requests", n)
						}
						break
					}
				}
			}
		})
	}
}

func metadata(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }

func label(revision string) func(map[string]any) {
	return func(o map[string]any) { metadata(o)["labels"].(map[string]any)["controller-revision-hash"] = revision }
}

// Whatever is odd stops it before anything is done.
func TestTakeOverRefuses(t *testing.T) {
	source := func(edit func(map[string]any)) func(*testing.T, *cluster) {
		return func(_ *testing.T, c *cluster) { c.changeSource(edit) }
	}
	pod := func(edit func(map[string]any)) func(*testing.T, *cluster) {
		return func(_ *testing.T, c *cluster) { c.Change(t, "pods", "db-2", edit) }
	}
	for name, tt := range map[string]struct {
		manifest string
		spoil    func(*testing.T, *cluster)
		args     string
		want     string
	}{
		"being deleted": {nativeSet, source(func(o map[string]any) { metadata(o)["deletionTimestamp"] = "2026-01-01T00:00:00Z" }), "", "is being deleted"},
		"orphaned by somebody": {nativeSet, source(func(o map[string]any) {
			metadata(o)["deletionTimestamp"], metadata(o)["finalizers"] = "2026-01-01T00:00:00Z", []any{"orphan"}
		}), "", "is being deleted"},
		"being deleted with its pods": {nativeSet, func(t *testing.T, c *cluster) {
			if err := os.WriteFile("mine.yaml", []byte("{kind: StatefulSet, apiVersion: apps/v1, metadata: {name: db, uid: uid-statefulset-db}}"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Change(t, c.source, "db", func(o map[string]any) {
				metadata(o)["deletionTimestamp"], metadata(o)["finalizers"] = "2026-01-01T00:00:00Z", []any{"foregroundDeletion"}
			})
		}, "--backup=mine.yaml", "is being deleted"},
		"finalizers": {nativeSet, source(func(o map[string]any) { metadata(o)["finalizers"] = []any{"mine"} }), "", "finalizers, which would keep it: mine"},
		"controlled": {nativeSet, source(func(o map[string]any) {
			metadata(o)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Operator", "name": "boss", "uid": "u", "controller": true}}
		}), "", "is controlled by Operator boss"},
		"not observed":     {nativeSet, source(func(o map[string]any) { metadata(o)["generation"] = int64(2) }), "", "has not seen its last change"},
		"scaling":          {nativeSet, source(func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(4) }), "", "wants 4 pods and has 3"},
		"rollout":          {nativeSet, pod(label("db-old")), "", "rollout is under way: pod db-2"},
		"daemon's rollout": {ownDaemons, pod(label("old")), "", "rollout is under way: pod db-2"},
		"pod being deleted": {nativeDaemons, pod(func(o map[string]any) { metadata(o)["deletionTimestamp"] = "2026-01-01T00:00:00Z" }), "",
			"db-2 is at its end or being deleted"},
		"pod not ready": {nativeSet, pod(func(o map[string]any) { o["status"] = map[string]any{"phase": "Running"} }), "", "db-2 is not ready"},
		"no revisions": {nativeSet, func(_ *testing.T, c *cluster) {
			c.Delete(t, "controllerrevisions", "db-old")
			c.Delete(t, "controllerrevisions", "db-new")
		}, "", "has no revisions"},
		"target exists": {nativeSet, func(_ *testing.T, c *cluster) { c.Put(t, ownSet) }, "", "statefulset.apps.kruise.io/db exists already"},
		"refused": {nativeSet, func(_ *testing.T, c *cluster) {
			c.Before = func(r plugintest.Request) error {
				if r.Method == http.MethodPost {
					return apierrors.NewBadRequest("no such field")
				}
				return nil
			}
		}, "", "the server would refuse statefulset.apps.kruise.io/db: no such field"},
		"protected": {ownSet, func(_ *testing.T, c *cluster) {
			c.Before = func(r plugintest.Request) error {
				if r.Method == http.MethodDelete {
					return apierrors.NewBadRequest("it is protected")
				}
				return nil
			}
		}, "", "refuse to delete statefulset.apps.kruise.io/db: it is protected"},
		"changed meanwhile": {nativeSet, func(_ *testing.T, c *cluster) {
			c.Before = func(r plugintest.Request) error {
				if r.Method == http.MethodDelete {
					c.Change(t, c.source, "db", func(o map[string]any) { metadata(o)["labels"] = map[string]any{"new": "one"} })
				}
				return nil
			}
		}, "", "the object has been modified"},
		"reserved ordinals": {ownSet, source(func(o map[string]any) {
			o["spec"].(map[string]any)["reserveOrdinals"] = []any{int64(1)}
		}), "", "has reserveOrdinals"},
		"reserved in the annotation": {ownSet, source(func(o map[string]any) {
			metadata(o)["annotations"].(map[string]any)["apps.kruise.io/v1beta1-only-fields"] = `{"reserveOrdinals":[1]}`
		}), "", "has reserveOrdinals"},
		"gate": {ownSet, source(func(o map[string]any) {
			_ = unstructured.SetNestedSlice(o, []any{map[string]any{"conditionType": "InPlaceUpdateReady"}}, "spec", "template", "spec", "readinessGates")
		}), "", "readiness gate InPlaceUpdateReady"},
		"file of another": {nativeSet, func(t *testing.T, c *cluster) {
			if err := os.WriteFile("mine.yaml", []byte("{kind: Pod, apiVersion: v1, metadata: {name: x, uid: other}}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "--backup=mine.yaml", "mine.yaml has the manifest of another object"},
		"file is none": {nativeSet, func(t *testing.T, c *cluster) {
			if err := os.WriteFile("mine.yaml", []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "--backup=mine.yaml", "reading the manifest in mine.yaml"},
		"no folder":       {nativeSet, func(*testing.T, *cluster) {}, "--backup=nowhere/mine.yaml", "keeping the manifest"},
		"no source":       {nativeSet, func(_ *testing.T, c *cluster) { c.Delete(t, c.source, "db") }, "", "does not exist; if its migration was interrupted"},
		"another name":    {nativeSet, func(*testing.T, *cluster) {}, "--dst-name=other", "keeps its name"},
		"replicas":        {nativeSet, func(*testing.T, *cluster) {}, "--replicas=2", "keeps its name"},
		"both directions": {nativeSet, func(*testing.T, *cluster) {}, "--to=apps", "--from=apps or --to=apps"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "v1beta1", tt.manifest)
			tt.spoil(t, c)
			before := c.pods()
			err := c.Run(t, quick, append(c.args, strings.Fields(tt.args)...)...).Err
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(before, c.pods()); diff != "" {
				t.Error("something was done:", diff)
			}
			for _, r := range c.Requests() {
				if r.Method == http.MethodPost && !strings.Contains(r.Query, "dryRun=All") {
					t.Error("it created ", r.Name)
				}
			}
		})
	}
}

// What takes long ends when the user has enough, says where the manifest is, and goes on when it is run
// again.
func TestTakeOverTimeout(t *testing.T) {
	for _, until := range []int{10_000_000, 0} {
		c := newCluster(t, "v1beta1", nativeSet)
		pods := c.pods()
		c.wait(until, until == 0)
		err := c.Run(t, quick, append(c.args, "--timeout-seconds=1")...).Err
		for _, want := range []string{"timed out after 1 seconds", "is in shop.db.statefulsets.apps.yaml"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("migration until %d: got error %v, want %q in it", until, err, want)
			}
		}
		if until == 0 && !strings.Contains(err.Error(), "has taken over 0 of 3 pods") &&
			!strings.Contains(err.Error(), "is created") {
			t.Errorf("migration that did nothing: got error %q, want how far it came", err)
		}
		c.wait(6, false) // for a while the source is still on its way out
		out, err := c.Run(t, quick, append(c.args, "--dry-run=server")...).Output()
		if err != nil {
			t.Errorf("a dry run after a timeout: %v", err)
		}
		if !strings.Contains(out, "is under way and would be finished") {
			t.Errorf("a dry run after a timeout: got %q, want that the migration is under way", out)
		}
		if out, err = c.Run(t, quick, c.args...).Output(); err != nil {
			t.Errorf("going on after a timeout: %v", err)
		}
		if !strings.Contains(out, "going on with a migration") {
			t.Errorf("going on after a timeout: got %q, want that it says so", out)
		}
		if err := c.migrated(pods); err != nil {
			t.Errorf("migration after a timeout: %v", err)
		}
	}
}

// A server that has v1alpha1 alone is served, but not with what v1alpha1 does not know.
func TestTakeOverV1alpha1(t *testing.T) {
	c := newCluster(t, "v1alpha1", nativeSet)
	err := c.Run(t, quick, c.args...).Err
	if err == nil || !strings.Contains(err.Error(), "v1alpha1 only, which know neither ordinals") {
		t.Errorf("migrate: got %v, want an error about what v1alpha1 does not know", err)
	}
	c.changeSource(func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		spec["ordinals"], spec["persistentVolumeClaimRetentionPolicy"] = nil, map[string]any{"whenDeleted": "Retain", "whenScaled": "Retain"}
	})
	pods := c.pods()
	if err := c.Run(t, quick, c.args...).Err; err != nil {
		t.Errorf("migrate: %v", err)
	}
	if err := c.migrated(pods); err != nil {
		t.Errorf("migration: %v", err)
	}
	if got := c.Get(t, c.target, "db").GetAPIVersion(); got != "apps.kruise.io/v1alpha1" {
		t.Errorf("version of what was made: got %s, want apps.kruise.io/v1alpha1", got)
	}
}

// A template that is another revision to the new owner is warned of.
func TestTakeOverWarnsOfAnotherRevision(t *testing.T) {
	c := newCluster(t, "v1beta1", nativeSet)
	adopt := c.BeforeRead
	c.BeforeRead = func(r plugintest.Request) error {
		_ = adopt(r)
		if r.Resource == c.target && c.Get(t, c.target, "db") != nil {
			c.Change(t, c.target, "db", func(o map[string]any) {
				if status, ok := o["status"].(map[string]any); ok {
					status["updatedReplicas"], status["updatedNumberScheduled"] = int64(1), int64(0)
				}
			})
		}
		return nil
	}
	result := c.Run(t, quick, c.args...)
	if result.Err != nil {
		t.Errorf("migrate: %v", result.Err)
	}
	if !strings.Contains(result.ErrOut, "only 1 of 3 pods are of the present revision") {
		t.Errorf("told: got %q, want how many pods are of the present revision", result.ErrOut)
	}
}

// TestTakeOverPrints: with -o the object alone goes to the output, while it is told elsewhere how it goes.
func TestTakeOverPrints(t *testing.T) {
	for _, format := range []string{"yaml", "name"} {
		c := newCluster(t, "v1beta1", nativeSet)
		result := c.Run(t, quick, append(c.args, "-o", format)...)
		out, err := result.Output()
		document := &unstructured.Unstructured{}
		if format == "yaml" {
			if problem := yaml.Unmarshal([]byte(out), &document.Object); problem != nil {
				t.Errorf("reading the output %s: %v", out, problem)
			}
			if name := document.GetName(); name != "db" {
				t.Errorf("output: got the name %q, want db: %s", name, out)
			}
		} else if out != "statefulset.apps.kruise.io/db\n" {
			t.Errorf("output: got %q, want the name of the StatefulSet", out)
		}
		if err != nil {
			t.Errorf("migrate with output %s: %v", format, err)
		}
		if !strings.Contains(result.ErrOut, "is migrated") {
			t.Errorf("told with output %s: got %q, want that it is migrated", format, result.ErrOut)
		}
	}
}
