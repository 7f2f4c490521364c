package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// edit changes an object by a patch of the differences, guarded by the resourceVersion that was read. It does
// nothing if the object does not exist.
func (t *takeover) edit(ctx context.Context, r reference,
	alter func(*unstructured.Unstructured) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before, err := t.get(ctx, r)
		if err != nil || before == nil {
			return err
		}
		after := before.DeepCopy()
		if err := alter(after); err != nil {
			return err
		}
		body, err := change.Patch(before, after)
		if err != nil {
			return err
		}
		return t.client.Patch(ctx, before, client.RawPatch(types.JSONPatchType, body),
			client.FieldOwner(t.fieldManager))
	})
}

// managerReference returns the reference to the manager's Deployment.
func (t *takeover) managerReference() reference {
	return reference{"apps/v1", installation.Deployments.Kind, t.choice.Namespace, installation.Manager}
}

// stop stops the running manager, and waits until it cannot act any more.
func (t *takeover) stop(ctx context.Context, places []place) error {
	manager, err := t.get(ctx, t.managerReference())
	if err != nil {
		return err
	}

	// An interrupted run was about to replace the Deployment by one with another selector.
	if manager == nil {
		if err := t.lockFree(ctx, newWatcher(places)); err != nil {
			return t.leave(ctx, err)
		}
		return nil
	}

	if !t.back {
		// This comes before the stop, so that pods can be created whatever happens then. On the way back it
		// does not: the project's manager would revert the change, its webhooks are called only for pods that
		// need them, and its entries follow after it has ended.
		if err := t.letPodsPass(ctx); err != nil {
			return err
		}
	}

	if err := t.noteTime(); err != nil {
		return err
	}

	if err := t.edit(ctx, t.managerReference(), func(manager *unstructured.Unstructured) error {
		annotations := manager.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[backupAnnotation] = t.backup
		manager.SetAnnotations(annotations)
		return unstructured.SetNestedField(manager.Object, int64(0), "spec", "replicas")
	}); err != nil {
		return t.leave(ctx, fmt.Errorf("stopping the manager: %w", err))
	}

	t.say("%s is to have no pods; webhooks about workloads refuse from here on", installation.Of(manager))
	w := newWatcher(places)
	if err := t.gone(ctx, manager, w); err != nil {
		return t.leave(ctx, err)
	}

	t.reached("pods gone")
	if err := t.letPodsPass(ctx); err != nil {
		return t.leave(ctx, err)
	}
	if err := t.lockFree(ctx, w); err != nil {
		return t.leave(ctx, err)
	}

	t.reached("lock free")
	return nil
}

func selectorOf(workload *unstructured.Unstructured) (labels.Selector, error) {
	raw, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("the selector of %s: %w", installation.Of(workload), err)
	}
	var selector metav1.LabelSelector
	if err := json.Unmarshal(text, &selector); err != nil {
		return nil, fmt.Errorf("the selector of %s: %w", installation.Of(workload), err)
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// noteTime records when webhooks began to reject requests, so that a resumed run knows it.
func (t *takeover) noteTime() error {
	path := filepath.Join(t.backup, stopped)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return write(path, []byte(t.now().UTC().Format(time.RFC3339Nano)))
}

// stopped is the file with the time at which the manager was stopped. It exists until another manager serves.
const stopped = "stopped-at"

// sayWindow reports for how long no manager has served.
func (t *takeover) sayWindow() error {
	path := filepath.Join(t.backup, stopped)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	since, parseErr := time.Parse(time.RFC3339Nano, string(text))
	if err := errors.Join(err, parseErr); err != nil {
		return fmt.Errorf("reading when the manager was stopped: %w", err)
	}
	t.say("no manager served for %s%s", t.now().Sub(since).Round(100*time.Millisecond), t.stages(since))
	return os.Remove(path)
}

// stage is a stage of the takeover, and when it was reached.
type stage struct {
	what string
	at   time.Time
}

func (t *takeover) reached(what string) {
	t.reachedStages = append(t.reachedStages, stage{what, t.now()})
}

// stages lists the stages that this run has reached since then, to show what took long.
func (t *takeover) stages(since time.Time) string {
	var texts []string
	for _, s := range t.reachedStages {
		texts = append(texts, fmt.Sprintf("%s after %s", s.what, s.at.Sub(since).Round(100*time.Millisecond)))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// checkPod is the name of the pod that starts both images.
const checkPod = "kruise-takeover-check"

// tryImages starts a pod with both images, so that a wrong image name is found while the other manager still
// runs.
func (t *takeover) tryImages(ctx context.Context, s *seen) error {
	pod, err := t.imagePod(s)
	if err != nil {
		return err
	}

	r := referenceTo(pod)
	if err := t.remove(ctx, r); err != nil { // left by an interrupted run
		return err
	}

	replicas, _, _ := unstructured.NestedInt64(s.manager.Object, "spec", "replicas")
	if t.skipCheck || replicas == 0 { // stopped already
		return nil
	}

	if err := t.wait(ctx, "a pod with the images", func(ctx context.Context) (string, error) {
		if err := t.client.Create(ctx, pod.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err //nolint:wrapcheck // it is told as what is waited for
		}
		live, err := t.get(ctx, r)
		if err != nil || live == nil {
			return "it is not there", err
		}
		return unstarted(live), nil
	}); err != nil {
		return errors.Join(fmt.Errorf("nothing was stopped: %w (--skip-image-check does not try)", err),
			t.remove(context.WithoutCancel(ctx), r))
	}

	t.say("both images start")
	return t.remove(ctx, r)
}

// unstarted describes which containers of a pod have not started yet, and why.
func unstarted(pod *unstructured.Unstructured) string {
	statuses := installation.Maps(pod.Object, "status", "containerStatuses")
	if len(statuses) == 0 {
		return "it is not on a node yet"
	}

	var missing []string
	for _, status := range statuses {
		waiting := installation.Text(status, "state", "waiting", "reason")
		failed := installation.Text(status, "state", "terminated", "reason")
		if failed != "StartError" && failed != "ContainerCannotRun" {
			failed = ""
		}
		if waiting+failed != "" {
			missing = append(missing,
				fmt.Sprintf("image %s: %s%s %s", installation.Text(status, "image"), waiting, failed,
					installation.Text(status, "state", "waiting", "message")+
						installation.Text(status, "state", "terminated", "message")))
		}
	}

	return strings.Join(missing, "; ")
}

// imagePod returns a pod that starts both images like the installation, but only prints their help.
func (t *takeover) imagePod(s *seen) (*unstructured.Unstructured, error) {
	var containers []any
	spec := map[string]any{"restartPolicy": "Never", "automountServiceAccountToken": false}

	for _, name := range []string{installation.Deployments.Kind, installation.DaemonSets.Kind} {
		for _, object := range t.manifests {
			if object.GetKind() != name {
				continue
			}
			container := mainContainer(object)
			containers = append(containers,
				map[string]any{"name": container["name"], "image": container["image"],
					"command": container["command"], "args": []any{"--help"},
					"securityContext": map[string]any{"allowPrivilegeEscalation": false}})
		}
	}

	manager, daemon, err := t.foreseen(s)
	if err != nil {
		return nil, err
	}

	placed(spec, manager, daemon)
	spec["containers"] = containers
	if len(containers) == 0 {
		return nil, errors.New("the manifests have no images")
	}

	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": t.choice.Namespace, "name": checkPod}, "spec": spec}}, nil
}

// replicasOf formats the number of replicas of a workload.
func replicasOf(workload *unstructured.Unstructured) string {
	replicas, _, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas")
	return wording.Count(int(replicas), "replica")
}
