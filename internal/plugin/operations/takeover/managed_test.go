package takeover

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/racetest"
)

// OPS-195: a Deployment that a tool keeps as a repository has it is not taken over: the tool is named, with
// what pauses it. A flag goes on.
func TestAToolThatManagesTheDeployment(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	for name, test := range map[string]struct{ labels, annotations, manager, want, pause string }{
		"Argo CD":                    {annotations: `"argocd.argoproj.io/tracking-id":"kruise:apps/Deployment:kruise-system/kruise-controller-manager"`, want: "Argo CD (application kruise)", pause: "kubectl -n argocd patch application kruise --type=merge"},
		"Argo CD, another namespace": {annotations: `"argocd.argoproj.io/tracking-id":"team_kruise:apps/Deployment:x"`, want: "Argo CD (application kruise)", pause: "kubectl -n team patch application kruise"},
		"Argo CD by label":           {labels: `"app.kubernetes.io/instance":"kruise"`, annotations: `"meta.helm.sh/release-name":null`, want: "Argo CD (application kruise, by label app.kubernetes.io/instance)", pause: "patch application kruise"},
		"Argo CD by field":           {manager: "argocd-controller", want: "Argo CD (application APPLICATION)", pause: "patch application APPLICATION"},
		"Flux, kustomize":            {labels: `"kustomize.toolkit.fluxcd.io/name":"infra","kustomize.toolkit.fluxcd.io/namespace":"flux-system"`, want: "Flux (Kustomization flux-system/infra)", pause: "flux -n flux-system suspend kustomization infra"},
		"Flux, Helm":                 {labels: `"helm.toolkit.fluxcd.io/name":"kruise","helm.toolkit.fluxcd.io/namespace":"apps"`, want: "Flux (HelmRelease apps/kruise)", pause: "flux -n apps suspend helmrelease kruise"},
		"another":                    {labels: `"app.kubernetes.io/managed-by":"pulumi"`, want: "pulumi (by label app.kubernetes.io/managed-by)", pause: "pause it there"},
		"Helm alone":                 {labels: `"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/instance":"kruise"`},
	} {
		w := newWorld(t, "")
		w.manifests = brief
		manager := "x"
		if test.manager != "" {
			manager = test.manager
		}
		body := fmt.Sprintf(`{"metadata":{"labels":{"a":"b"%s},"annotations":{"c":"d"%s}}}`, more(test.labels), more(test.annotations))
		if err := w.bare.Patch(t.Context(), w.deployment(), client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
		c := w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
		err := c.run(t.Context())
		if test.want == "" {
			if err != nil {
				t.Errorf("takeover, %s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: error: got nil, want an error; %v, wrote %v", name, err, w.written)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error: got %q, want it to contain %q; %v, wrote %v", name, err.Error(), test.want, err,
				w.written)
		} else if !strings.Contains(err.Error(), test.pause) {
			t.Errorf("%s: error: got %q, want it to contain %q; %v, wrote %v", name, err.Error(), test.pause, err,
				w.written)
		} else if w.writes > 0 {
			t.Errorf("%s: number of writes: got %d, want 0; %v, wrote %v", name, w.writes, err, w.written)
		}
		if name != "Argo CD" {
			continue
		}
		c = w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
		c.allowManaged = true
		if err := c.run(t.Context()); err != nil {
			t.Errorf("%s, allowed: %v", name, err)
		}
	}
}

func more(fields string) string {
	if fields == "" {
		return ""
	}
	return "," + fields
}

func (w *world) deployment() *unstructured.Unstructured {
	manager := &unstructured.Unstructured{}
	manager.SetGroupVersionKind(installation.Deployments)
	manager.SetNamespace(namespace)
	manager.SetName(installation.Manager)
	return manager
}

// OPS-195: whether a tool is paused is read where it may be.
func TestAToolThatIsPaused(t *testing.T) {
	for text, want := range map[string]bool{`{spec: {suspend: true}}`: true, `{spec: {}}`: false} {
		objects, err := installation.Parse([]byte(text))
		if err == nil && suspended(objects[0]) != want {
			t.Errorf("a tool that suspends by %s is paused: got %t, want %t", text, !want, want)
		}
	}
	for text, want := range map[string]bool{`{spec: {syncPolicy: {automated: {selfHeal: true}}}}`: false, `{spec: {syncPolicy: {automated: {}}}}`: false,
		`{spec: {syncPolicy: {automated: {enabled: false}}}}`: true, `{spec: {syncPolicy: {}}}`: true, `{spec: {}}`: true} {
		objects, err := installation.Parse([]byte(text))
		if err == nil && notAutomated(objects[0]) != want {
			t.Errorf("a tool that syncs by %s is paused: got %t, want %t", text, !want, want)
		}
	}
}

// OPS-183, OPS-195: a tool that nobody has recognised starts the other manager again while the manifests are
// applied, or puts it back after ours was started. Two managers are never wanted at once; the command ends,
// and says who wrote it. Pods can be created.
func TestAToolThatHealsDuringTheTakeover(t *testing.T) {
	brief := withoutSchemas(t)
	for at, want := range map[string]string{
		"stop":      "was started again meanwhile, and two managers would act; its replicas were written by healer",
		"Namespace": "was started again meanwhile, and two managers would act; its replicas were written by healer",
		"Pod":       "was put back meanwhile to what it was"} {
		w := newWorld(t, "")
		w.manifests = brief
		theirs, err := installation.Get(t.Context(), w.bare, installation.Deployments, namespace, installation.Manager)
		if err != nil {
			t.Fatal(err)
		}
		var healed atomic.Bool // manifests are applied side by side
		heal := func() {
			if healed.Swap(true) {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if err := w.bare.Patch(t.Context(), w.deployment(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)),
				client.FieldOwner("healer")); err != nil {
				t.Errorf("scaling by somebody else: %v", err)
			}
			w.standIns()
		}
		w.WithWatch = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				err := c.Patch(ctx, o, p, options...)
				if at == "stop" && o.GetName() == installation.Manager {
					heal()
				}
				return err
			},
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				dryRun := (&client.ApplyOptions{}).ApplyOptions(options).DryRun != nil
				if o.(interface{ GetKind() string }).GetKind() == at && !dryRun {
					heal()
				}
				return c.Apply(ctx, o, options...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				dryRun := (&client.CreateOptions{}).ApplyOptions(options).DryRun != nil
				if at == "Pod" && dryRun && !healed.Swap(true) {
					back := theirs.DeepCopy()
					back.SetManagedFields(nil)
					back.SetResourceVersion("")
					if err := w.bare.Update(ctx, back, client.FieldOwner("healer")); err != nil {
						t.Errorf("healing by somebody else: %v", err)
					}
				}
				return c.Create(ctx, o, options...)
			}})
		c := w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
		c.timeout = 2 * time.Second
		err = c.run(t.Context())
		if err == nil {
			t.Errorf("%s: error: got nil, want an error", at)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error: got %q, want it to contain %q", at, err.Error(), want)
		} else if !strings.Contains(err.Error(), "pods can be created meanwhile") {
			t.Errorf("%s: error: got %q, want it to contain %q", at, err.Error(), "pods can be created meanwhile")
		} else if !healed.Load() {
			t.Errorf("%s: it was healed: got false, want true\n%v", at, err)
		}
		if at != "Pod" && len(w.violated) > 0 {
			t.Errorf("violations: got %q, want none", w.violated)
		}
	}
}

// answered runs something before it answers a question.
type answered struct{ before func() }

func (a *answered) Read(p []byte) (int, error) {
	if a.before != nil {
		a.before()
		a.before = nil
	}
	return copy(p, "y\n"), nil
}

// OPS-196: of two takeovers at once one goes on. The one that was asked first sees that the other was faster,
// also if that is done by then, or if it is in the middle; a run that was killed holds up the next one only
// until its turn has run out.
func TestTwoTakeoversAtOnce(t *testing.T) {
	brief := withoutSchemas(t)
	w := newWorld(t, "")
	w.manifests = brief
	folder := filepath.Join(t.TempDir(), "second")
	c := w.command(filepath.Join(t.TempDir(), "first"), io.Discard)
	c.yes, c.In = false, &answered{before: func() {
		if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
			t.Errorf("another takeover meanwhile: %v", err)
		}
	}}
	if err := c.run(t.Context()); err == nil {
		t.Error("takeover: got nil, want an error")
	} else if !strings.Contains(err.Error(), "nothing was changed: somebody has changed Deployment") {
		t.Errorf("takeover: got %q, want it to contain %q", err.Error(),
			"nothing was changed: somebody has changed Deployment")
	}
	saved, err := readBackup(w.remembered(t))
	if err != nil {
		t.Errorf("the way back is lost: %s: %v", w.remembered(t), err)
	}
	if saved == nil {
		t.Errorf("the way back is lost: nothing is in %s", w.remembered(t))
	}
	if got := w.remembered(t); got != folder {
		t.Errorf("remembered way back: got %s, want %s", got, folder)
	}

	w = newWorld(t, "")
	w.manifests = brief
	first := w.command(filepath.Join(t.TempDir(), "first"), io.Discard)
	first.holder, first.choice.Namespace = "first", namespace
	_, release, err := first.takeTurn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	second := w.command(filepath.Join(t.TempDir(), "second"), io.Discard)
	second.holder, second.ErrOut = "second", &said
	if err := second.run(t.Context()); err != nil { // the first one does not renew it: it is taken for dead
		t.Errorf("the second takeover: %v", err)
	}
	if !strings.Contains(said.String(), "waiting for another takeover, of first") {
		t.Errorf("said: got %q, want it to contain %q", said.String(), "waiting for another takeover, of first")
	}
	release()

	// One that goes on renewing it is left alone.
	w = newWorld(t, "")
	first = w.command(filepath.Join(t.TempDir(), "first"), io.Discard)
	first.holder, first.choice.Namespace, first.turnFor, first.renewEvery = "first", namespace, time.Minute, 5*time.Millisecond
	first.client = w.bare
	_, release, err = first.takeTurn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := w.command(filepath.Join(t.TempDir(), "second"), io.Discard).run(t.Context()); err == nil {
		t.Errorf("error: got nil, want an error\n%q", w.written)
	} else if !strings.Contains(err.Error(), "another takeover is under way, of first") {
		t.Errorf("error: got %q, want it to contain %q\n%q", err.Error(),
			"another takeover is under way, of first", w.written)
	} else if w.writes > 0 {
		t.Errorf("number of writes: got %d, want 0\n%v\n%q", w.writes, err, w.written)
	}
}

func (w *world) remembered(t *testing.T) string {
	t.Helper()
	manager, err := installation.Get(t.Context(), w.bare, installation.Deployments, namespace, installation.Manager)
	if err != nil {
		t.Fatal(err)
	}
	return manager.GetAnnotations()[backupAnnotation]
}
