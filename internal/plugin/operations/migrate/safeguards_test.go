package migrate

import (
	"errors"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// forbid takes the right to read the namespace away.
func forbid(s *plugintest.Server) {
	s.Fault = func(before bool, _, path string) error {
		if before && strings.HasSuffix(path, "/namespaces/shop") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "shop", errors.New("no rights"))
		}
		return nil
	}
}

// A migration in production was interrupted after its StatefulSet was deleted, and the same command is run
// with the context of another cluster: nothing is created there, and the file stays, so that it can go on in
// production.
func TestProductionsStatefulSetIsNotCreatedInAnotherCluster(t *testing.T) {
	namespace := func(uid string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: " + uid + "}}"
	}
	for name, tt := range map[string]struct {
		there     []string
		forbidden bool
		old       bool
		want      string
	}{
		"nothing of that there":   {nil, false, false, "is of another cluster"},
		"a namespace of the name": {[]string{namespace("uid-of-staging")}, false, false, "that had UID uid-of-shop, and this one has uid-of-staging"},
		"and the new workload":    {[]string{namespace("uid-of-staging"), ownSet}, false, false, "is of another cluster"},
		"may not read it":         {[]string{namespace("uid-of-staging")}, true, false, "nobody knows whether"},
		"a file that says none":   {[]string{namespace("uid-of-staging")}, false, true, "nobody knows whether"},
	} {
		t.Run(name, func(t *testing.T) {
			production := newCluster(t, "v1beta1", nativeSet)
			production.wait(1<<30, true)
			if err := production.Run(t, quick, append(production.args, "--timeout-seconds=1")...).Err; err == nil {
				t.Fatal("it was not interrupted")
			}
			const file = "shop.db.statefulsets.apps.yaml"
			if tt.old {
				raw, err := os.ReadFile(file)
				_, rest, _ := strings.Cut(string(raw), "\n")
				if err = errors.Join(err, os.WriteFile(file, []byte(rest), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			other := plugintest.NewIn(t, "shop", "v1beta1", tt.there...)
			if tt.forbidden {
				forbid(other)
			}
			err := other.Run(t, quick, append(production.args, "--timeout-seconds=1")...).Err
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if made := other.Get(t, "statefulsets.apps.kruise.io", "db"); made != nil && len(tt.there) < 2 {
				t.Error("the StatefulSet was created there")
			}
			if tt.old {
				return
			}
			production.wait(1, false)
			pods := production.pods()
			if err := production.Run(t, quick, production.args...).Err; err != nil {
				t.Error("it does not go on in production:", err)
			}
			if err := production.migrated(pods); err != nil {
				t.Errorf("migration in production: %v", err)
			}
		})
	}
}

// Who may not read the namespace can migrate all the same, as long as nothing interrupts it.
func TestTakeOverWithoutTheRightToReadTheNamespace(t *testing.T) {
	c := newCluster(t, "v1beta1", nativeSet)
	pods := c.pods()
	forbid(c.Server)
	if err := c.Run(t, quick, c.args...).Err; err != nil {
		t.Errorf("migrate: %v", err)
	}
	if err := c.migrated(pods); err != nil {
		t.Errorf("migration without the right to read the namespace: %v", err)
	}
}

const back = "Deployment --from=CloneSet -n shop --src-name=web --create --copy"

// OPS-167: what a partition or a pause has kept to a few pods is not rolled out to all by a migration: it is
// refused, either way.
func TestMigratingACanaryDoesNotRollItOut(t *testing.T) {
	status := func(observed, updated int64, current string) func(map[string]any) {
		return func(o map[string]any) {
			o["status"] = map[string]any{"observedGeneration": observed, "replicas": int64(3), "availableReplicas": int64(3), "updatedReplicas": updated,
				"currentRevision": current, "updateRevision": "web-new"}
		}
	}
	for name, tt := range map[string]struct {
		edit func(map[string]any)
		want string
	}{
		"held":         {status(1, 1, "web-old"), "1 of 3 pods are of its template"},
		"not yet seen": {status(0, 3, "web-new"), "has not seen its last change yet"},
		"done":         {status(1, 3, "web-new"), ""},
	} {
		for _, from := range []string{"clonesets", "deployments"} {
			t.Run(name+" "+from, func(t *testing.T) {
				s, args := plugintest.NewIn(t, "shop", "v1beta1", cloneSet("v1beta1", "web", 3)), back
				if from == "deployments" {
					s, args = plugintest.NewIn(t, "shop", "v1beta1", deployment), forward+" --create"
				}
				s.Change(t, from, "web", tt.edit)
				err := s.Run(t, quick, append([]string{"migrate"}, strings.Fields(args)...)...).Err
				if tt.want == "" && err == nil {
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) || tt.want == "" {
					t.Errorf("migrate: got %v, want an error with %q", err, tt.want)
				}
				if s.Get(t, "deployments", "web") != nil && s.Get(t, "clonesets", "web") != nil {
					t.Error("it was created")
				}
			})
		}
	}
}

// OPS-167: a paused CloneSet becomes a Deployment that gets pods, since one that is created paused gets none;
// this and what is lost is told.
func TestAPausedCloneSetBecomesADeploymentWithPods(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		s := plugintest.NewIn(t, "shop", version, cloneSet(version, "web", 3))
		s.Change(t, "clonesets", "web", func(o map[string]any) {
			strategy := o["spec"].(map[string]any)["updateStrategy"].(map[string]any)
			if version == "v1beta1" {
				strategy = strategy["rollingUpdate"].(map[string]any)
			}
			strategy["partition"] = "20%"
			o["spec"].(map[string]any)["scaleStrategy"] = map[string]any{"podsToDelete": []any{}, "disablePVCReuse": false}
			o["spec"].(map[string]any)["lifecycle"] = map[string]any{"preDelete": map[string]any{"markPodNotReady": true}}
			o["status"].(map[string]any)["observedGeneration"] = int64(2)
		})
		result := s.Run(t, quick, append([]string{"migrate"}, strings.Fields(back)...)...)
		if result.Err != nil {
			t.Errorf("migrate: %v", result.Err)
		}
		if isPaused, found, _ := unstructured.NestedBool(s.Get(t, "deployments", "web").Object, "spec",
			"paused"); found || isPaused {
			t.Errorf("the Deployment has paused %t, want it not to be paused", isPaused)
		}
		field := map[string]string{"v1beta1": "updateStrategy.rollingUpdate.partition", "v1alpha1": "updateStrategy.partition"}[version]
		for _, want := range []string{"is paused, and deployment.apps/web is not", "loses: lifecycle, " + field + "\n"} {
			if !strings.Contains(result.ErrOut, want) {
				t.Errorf("%q, want %q", result.ErrOut, want)
			}
		}
	}
}

// OPS-167 (part): replicas are not moved to a Deployment that is paused and has no ReplicaSet: they would be
// waited for for ever.
func TestReplicasDoNotGoToADeploymentThatNeverGetsPods(t *testing.T) {
	f := newFleet(t, "v1beta1", 0, 3)
	f.Change(t, "deployments", "web", func(o map[string]any) {
		delete(metadata(o)["annotations"].(map[string]any), "deployment.kubernetes.io/revision")
	})
	err := f.Run(t, quick, "migrate", "Deployment", "--from=CloneSet", "-n", "shop", "--src-name=web", "--timeout-seconds=1").Err
	if err == nil || !strings.Contains(err.Error(), "is paused and never had pods") {
		t.Errorf("migrate: got %v, want that the Deployment is paused and never had pods", err)
	}
	if got := f.replicas(); got != "0 3" {
		t.Errorf("replicas: got %s, want 0 3", got)
	}
}

// A tool that keeps the old workload would prune the new one by the labels that they share, and make the old
// one anew; an autoscaler and an owner act on the old one. All are told, for every kind, and the tool's
// labels are not copied.
func TestWhoElseActsOnTheWorkloadIsTold(t *testing.T) {
	keep := func(o map[string]any) {
		object := &unstructured.Unstructured{Object: o}
		object.SetLabels(map[string]string{"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm", "team": "shop",
			"kustomize.toolkit.fluxcd.io/name": "shop"})
		object.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "shop:apps", "argocd.argoproj.io/sync-options": "Prune=false",
			"meta.helm.sh/release-name": "shop"})
		metadata(o)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Shop", "name": "mine", "uid": "u"}}
	}
	for name, tt := range map[string]struct {
		manifest, from, to, line string
	}{
		"StatefulSet": {nativeSet, "statefulsets.apps", "statefulsets.apps.kruise.io", ""},
		"DaemonSet":   {ownDaemons, "daemonsets.apps.kruise.io", "daemonsets.apps", ""},
		"Deployment":  {deployment, "deployments", "clonesets", forward + " --create"},
		"CloneSet":    {cloneSet("v1beta1", "web", 3), "clonesets", "deployments", back},
	} {
		t.Run(name, func(t *testing.T) {
			object := plugintest.Object(t, tt.manifest)
			var s *plugintest.Server
			args := append([]string{"migrate"}, strings.Fields(tt.line)...)
			if tt.line == "" {
				c := newCluster(t, "v1beta1", tt.manifest)
				s, args = c.Server, c.args
			} else {
				s = plugintest.NewIn(t, "shop", "v1beta1", tt.manifest)
			}
			s.Change(t, tt.from, object.GetName(), keep)
			refer := "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: %}, spec: {scaleTargetRef: {apiVersion: #, kind: " +
				object.GetKind() + ", name: " + object.GetName() + "}}}"
			s.Put(t, strings.NewReplacer("%", "mine", "#", object.GetAPIVersion()).Replace(refer))
			s.Put(t, strings.NewReplacer("%", "others", "#", "example.com/v1").Replace(refer))
			s.Put(t, "{apiVersion: apps.kruise.io/v1beta1, kind: PersistentPodState, metadata: {name: places}, spec: {targetRef: {apiVersion: "+object.GetAPIVersion()+", kind: "+
				object.GetKind()+", name: "+object.GetName()+"}}}")
			result := s.Run(t, quick, args...)
			if result.Err != nil {
				t.Fatal(result.Err)
			}
			for _, want := range []string{"app.kubernetes.io/instance, app.kubernetes.io/managed-by, kustomize.toolkit.fluxcd.io/name, " +
				"argocd.argoproj.io/tracking-id, meta.helm.sh/release-name", "belongs to Shop mine", "HorizontalPodAutoscaler mine names",
				"delete it and make one that names that"} { // what a PersistentPodState names cannot be changed
				if !strings.Contains(result.ErrOut, want) {
					t.Errorf("%q is not told: %s", want, result.ErrOut)
				}
			}
			made := s.Get(t, tt.to, object.GetName())
			if labels := made.GetLabels(); len(labels) != 1 || labels["team"] != "shop" {
				t.Errorf("labels of what was made: got %v, want those of the source", labels)
			}
			if annotations := made.GetAnnotations(); len(annotations) != 1 || annotations["argocd.argoproj.io/sync-options"] == "" {
				t.Errorf("annotations of what was made: got %v, want those of the source", annotations)
			}
		})
	}
}
