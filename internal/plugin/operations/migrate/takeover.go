package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/pods"
)

// takeover is the migration of a StatefulSet or DaemonSet together with its pods. Its progress shows in the
// cluster and in the file with the old manifest, so it can resume from any state.
type takeover struct {
	*command
	source, target *side
	file           string
	// old is the UID of the source, even after the source is gone.
	old types.UID
	// revisions are the names by which pods refer to the present revision of the source.
	revisions []string
}

func (c *command) takeOver(ctx context.Context, usage func(string, ...any) error, kind string) error {
	from, to := nativeGroup, ownGroup
	switch {
	case c.from == nativeGroup && c.to == "":
	case c.to == nativeGroup && c.from == "":
		from, to = ownGroup, nativeGroup
	default:
		return usage("a %s can be migrated --from=apps or --to=apps", kind)
	}
	if c.target != c.source || c.create || c.replicas >= 0 {
		return usage("a %s keeps its name and its pods: --dst-name, --create and --replicas make no sense",
			kind)
	}

	source, err := c.side(from, kind, c.source)
	if err != nil {
		return err
	}

	target, err := c.side(to, kind, c.target)
	if err != nil {
		return err
	}

	t := &takeover{command: c, source: source, target: target, file: c.manifest}
	if t.file == "" {
		t.file = fmt.Sprintf("%s.%s.%s.yaml", c.namespace, c.source, source.mapping.Resource.GroupResource())
	}

	c.options.FieldValidation = metav1.FieldValidationStrict
	return because(ctx, t.run(ctx))
}

// run resumes from the state that it finds.
func (t *takeover) run(ctx context.Context) error {
	if err := t.source.read(ctx); err != nil {
		return err
	}
	if err := t.target.read(ctx); err != nil {
		return err
	}

	saved, err := load(t.file)
	if err != nil {
		return err
	}

	if saved != nil && (t.source.object == nil || t.source.object.GetUID() == saved.GetUID()) {
		if err := t.same(ctx); err != nil {
			return err
		}
	}

	leaving := t.source.object != nil && saved != nil && saved.GetUID() == t.source.object.GetUID() &&
		t.source.object.GetDeletionTimestamp() != nil &&
		slices.Contains(t.source.object.GetFinalizers(), metav1.FinalizerOrphanDependents)
	for _, known := range []*unstructured.Unstructured{saved, t.source.object} {
		if known != nil {
			t.old = known.GetUID()
		}
	}

	switch {
	case t.source.object == nil && t.target.object == nil && saved == nil:
		return fmt.Errorf("%s does not exist; if its migration was interrupted elsewhere, name the file that has its manifest with --backup",
			t.source)
	case t.source.object != nil && t.target.object != nil && !leaving:
		return fmt.Errorf("%s exists already", t.target)
	case t.source.object != nil && !leaving:
		if err := t.prepare(ctx); err != nil || t.options.DryRun != cmdutil.DryRunNone {
			return err
		}
		saved = t.source.object
	case t.options.DryRun != cmdutil.DryRunNone:
		fmt.Fprintf(t.Out, "a migration of %s is under way and would be finished (dry run)\n", t.source)
		return nil
	default:
		fmt.Fprintf(t.Out, "going on with a migration that was begun\n")
	}
	if err := t.gone(ctx); err != nil {
		return fmt.Errorf("%w; the manifest of %s is in %s, and the same command goes on", err, t.source,
			t.file)
	}
	if err := t.finish(ctx, saved); err != nil {
		return fmt.Errorf("%w; the manifest of %s is in %s, and the same command goes on", err, t.source,
			t.file)
	}

	return t.done()
}

// namespaceUID returns the UID of the namespace, which shows that a file is not from another cluster. It
// returns nothing if the user may not read the namespace.
func (t *takeover) namespaceUID(ctx context.Context) (types.UID, error) {
	client, err := t.KubernetesClientSet()
	if err != nil {
		return "", err
	}
	namespace, err := client.CoreV1().Namespaces().Get(ctx, t.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading namespace %s: %w", t.namespace, err)
	}
	return namespace.UID, nil
}

// same returns an error if the file may be from another cluster. With another context, the same command would
// create the workload of one cluster in another.
func (t *takeover) same(ctx context.Context) error {
	saved, err := savedIn(t.file)
	if err != nil {
		return err
	}

	now, err := t.namespaceUID(ctx)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is of another cluster: there is no namespace %s here; nothing was done", t.file,
			t.namespace)
	}

	switch {
	case err != nil:
		return err
	case saved.namespace != "" && now != "" && saved.namespace != now:
		return fmt.Errorf("%s is of another cluster, or of an earlier namespace %s: that had UID %s, and this one has %s; nothing was done",
			t.file, t.namespace, saved.namespace, now)
	case (saved.namespace == "" || now == "") && t.source.object == nil && t.target.object == nil:
		return fmt.Errorf("nobody knows whether %s is of this cluster: it takes the right to read namespace %s, now and when the migration began; "+
			"if it is, kubectl create -f %[1]s makes %[3]s anew with its pods, and the command begins again once the file is moved away; nothing was done",
			t.file, t.namespace, t.source)
	}

	return nil
}

// prepare takes all steps that can be undone, and the one that cannot: it orphans the pods. If it fails
// before that, nothing has changed.
func (t *takeover) prepare(ctx context.Context) error {
	if err := t.odd(ctx); err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}

	object, dropped, err := converted(t.source, t.target)
	if err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	if err := t.warn(ctx, t.source, t.target); err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	if len(dropped) > 0 {
		fmt.Fprintf(t.ErrOut, "Warning: %s has no place for, and loses: %s\n", t.target,
			strings.Join(dropped, ", "))
	}
	if t.options.DryRun == cmdutil.DryRunClient {
		return t.plan(object)
	}

	trial := t.options
	trial.DryRun = cmdutil.DryRunServer
	if _, err := change.Create(t, trial, object); err != nil {
		return fmt.Errorf("nothing was done: the server would refuse %s: %w", t.target, err)
	}
	if err := t.orphan(ctx, true); err != nil {
		return fmt.Errorf("nothing was done: the server would refuse to delete %s: %w", t.source, err)
	}
	if t.options.DryRun == cmdutil.DryRunServer {
		return t.plan(object)
	}

	namespace, err := t.namespaceUID(ctx)
	if err == nil {
		err = save(t.file, t.source.object, provenance{namespace, t.revisions})
	}
	if err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}

	fmt.Fprintf(t.Out, "the manifest of %s is in %s\n", t.source, t.file)
	if err := t.orphan(ctx, false); err != nil {
		return fmt.Errorf("deleting %s without its pods: %w; run the command again", t.source, err)
	}

	fmt.Fprintf(t.Out, "%s deleted without its pods\n", t.source)
	return nil
}

// plan prints what would be done.
func (t *takeover) plan(object *unstructured.Unstructured) error {
	if t.flags.Print.OutputFlagSpecified() {
		return t.printer.PrintObj(object, t.objects)
	}
	kind := "dry run"
	if t.options.DryRun == cmdutil.DryRunServer {
		kind = "server dry run"
	}
	fmt.Fprintf(t.Out, "the manifest of %s would be kept in %s (%s)\n", t.source, t.file, kind)
	fmt.Fprintf(t.Out, "%s would be deleted without its pods (%s)\n", t.source, kind)
	fmt.Fprintf(t.Out, "%s would be created and take the pods over (%s)\n", t.target, kind)
	return nil
}

// orphan deletes the source without its pods, guarded by its UID and resourceVersion.
func (t *takeover) orphan(ctx context.Context, trial bool) error {
	uid, version, policy := t.source.object.GetUID(), t.source.object.GetResourceVersion(),
		metav1.DeletePropagationOrphan
	o := metav1.DeleteOptions{PropagationPolicy: &policy,
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
	if trial {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return t.source.client.Delete(ctx, t.source.name, o)
}

// gone waits until the source has released its pods and is deleted.
func (t *takeover) gone(ctx context.Context) error {
	for {
		now, err := t.source.client.Get(ctx, t.source.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading %s: %w", t.source, err)
		case now.GetUID() != t.old:
			return fmt.Errorf("somebody has created %s anew", t.source)
		}
		if err := t.pause(ctx); err != nil {
			return fmt.Errorf("%s is not away yet: %w", t.source, err)
		}
	}
}

// finish creates the target unless it exists, and waits until it has adopted all pods.
func (t *takeover) finish(ctx context.Context, saved *unstructured.Unstructured) error {
	if t.target.object == nil {
		if err := t.fits(ctx, saved); err != nil {
			return err
		}
		t.source.object = saved
		object, _, err := converted(t.source, t.target)
		if err != nil {
			return err
		}
		created, err := change.Create(t, t.options, object)
		if err != nil {
			return fmt.Errorf("creating %s: %w", t.target, err)
		}
		t.target.object = created
		if err := t.printer.PrintObj(created, t.objects); err != nil {
			return err
		}
	}

	for said := ""; ; {
		own, orphans, err := t.adopted(ctx)
		if err != nil && said != "" {
			return fmt.Errorf("%s: %w", said, err)
		} else if err != nil {
			return err
		}

		text := fmt.Sprintf("%s has taken over %d of %d pods", t.target, own, own+orphans)
		if text != said {
			fmt.Fprintln(t.Out, text)
			said = text
		}
		if orphans == 0 && t.target.observed() && int64(own) >= wanted(t.target) {
			break
		}
		if err := t.pause(ctx); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}

	if n, all := updated(t.target), wanted(t.target); n < all {
		fmt.Fprintf(t.ErrOut,
			"Warning: only %d of %d pods are of the present revision of %s: it may replace the others\n", n,
			all, t.target)
	}

	return nil
}

// fits returns an error if the source was changed after its manifest was saved, and somebody else deleted it without its
// pods then: the target would replace them by pods of the older template, or remove those that are too many for it.
func (t *takeover) fits(ctx context.Context, saved *unstructured.Unstructured) error {
	from, err := savedIn(t.file)
	if err != nil {
		return err
	}
	left, err := t.orphans(ctx, saved)
	if err != nil {
		return err
	}
	const advice = "it was changed after its manifest was kept; nothing was created: another file may have the newer manifest (--backup)"
	for _, pod := range left {
		if hash := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; len(from.revisions) > 0 && !slices.Contains(from.revisions, hash) {
			return fmt.Errorf("pod %s of %s is of revision %s, and the manifest of revision %s: %s", pod.Name, t.source, hash,
				from.revisions[0], advice)
		}
	}
	if n := number(saved, 1, "spec", "replicas"); saved.GetKind() == "StatefulSet" && int64(len(left)) > n {
		return fmt.Errorf("%s left %d pods, and its manifest wants %d: %s", t.source, len(left), n, advice)
	}
	return nil
}

// orphans returns the active pods that a workload has left behind, or is leaving behind.
func (t *takeover) orphans(ctx context.Context, workload *unstructured.Unstructured) ([]*corev1.Pod, error) {
	all, err := t.pods(ctx, workload)
	return slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return !pods.Active(pod) || !t.left(pod) }), err
}

// left reports whether the source has left a pod behind, or is leaving it behind. Pods that it did not make, such as copies to
// debug, have no revision, or not the name of a pod of a StatefulSet, which would not adopt them.
func (t *takeover) left(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	suffix, named := strings.CutPrefix(pod.Name, t.target.name+"-")
	if t.target.mapping.GroupVersionKind.Kind == "StatefulSet" && strings.Trim(suffix, "0123456789") != "" {
		return false
	}
	return (controller == nil || controller.UID == t.old) && named && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != ""
}

// pods returns the pods that a workload selects.
func (t *takeover) pods(ctx context.Context, workload *unstructured.Unstructured) ([]*corev1.Pod, error) {
	selector, err := pods.Selector(workload)
	if err != nil {
		return nil, err
	}
	client, err := t.KubernetesClientSet()
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", t.target, err)
	}
	all := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// wanted returns how many pods a workload wants.
func wanted(s *side) int64 {
	if s.mapping.GroupVersionKind.Kind == "DaemonSet" {
		return s.number(0, "status", "desiredNumberScheduled")
	}
	return s.replicas()
}

// updated returns how many pods the workload counts as being of its current revision.
func updated(s *side) int64 {
	return max(s.number(0, "status", "updatedReplicas"), s.number(0, "status", "updatedNumberScheduled"))
}

// adopted reads the target, and counts the active pods that it controls and the orphans that it should adopt.
func (t *takeover) adopted(ctx context.Context) (own, orphans int, err error) {
	if err := t.target.must(ctx); err != nil {
		return 0, 0, err
	}

	all, err := t.pods(ctx, t.target.object)
	if err != nil {
		return 0, 0, err
	}
	for _, pod := range all {
		switch {
		case !pods.Active(pod):
		case metav1.IsControlledBy(pod, t.target.object):
			own++
		case t.left(pod):
			orphans++
		}
	}

	return own, orphans, nil
}

// done renames the file, so that the next migration is not mistaken for this one.
func (t *takeover) done() error {
	kept, err := setAside(t.file)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.Out, "%s is migrated", t.target)
	if kept != "" {
		fmt.Fprintf(t.Out, "; the old manifest is in %s", kept)
	}
	fmt.Fprintln(t.Out)
	return nil
}

// odd returns an error if the source is not in a state to be migrated.
func (t *takeover) odd(ctx context.Context) error {
	object := t.source.object
	switch controller := metav1.GetControllerOf(object); {
	case object.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s is being deleted", t.source)
	case len(object.GetFinalizers()) > 0:
		return fmt.Errorf("%s has finalizers, which would keep it: %s", t.source,
			strings.Join(object.GetFinalizers(), ", "))
	case controller != nil:
		return fmt.Errorf("%s is controlled by %s %s, which would make it anew", t.source, controller.Kind,
			controller.Name)
	case !t.source.observed():
		return fmt.Errorf("the controller of %s has not seen its last change yet", t.source)
	}
	own, err := pods.Of(ctx, t, object)
	if err != nil {
		return err
	}
	if n := wanted(t.source); int64(len(own)) != n {
		return fmt.Errorf("%s wants %d pods and has %d", t.source, n, len(own))
	}

	t.revisions, err = t.present(ctx, object.GetUID())
	if err != nil {
		return err
	}

	for i := range own {
		hash := own[i].Labels["controller-revision-hash"]
		switch {
		case !pods.Active(&own[i]):
			return fmt.Errorf("pod %s is at its end or being deleted", own[i].Name)
		case !slices.Contains(t.revisions, hash):
			return fmt.Errorf("a rollout is under way: pod %s is of revision %s, the present one is %s",
				own[i].Name, hash, t.revisions[0])
		case !ready(&own[i]):
			return fmt.Errorf("pod %s is not ready", own[i].Name)
		}
	}

	return nil
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// present returns the names by which pods may refer to the newest revision.
func (t *takeover) present(ctx context.Context, owner types.UID) ([]string, error) {
	client, err := t.KubernetesClientSet()
	if err != nil {
		return nil, err
	}

	all, err := client.AppsV1().ControllerRevisions(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}

	newest := int64(-1)
	var names []string
	for i := range all.Items {
		revision := &all.Items[i]
		controller := metav1.GetControllerOf(revision)
		if controller == nil || controller.UID != owner || revision.Revision <= newest {
			continue
		}
		newest = revision.Revision
		names = []string{revision.Name, revision.Labels["controller-revision-hash"],
			revision.Labels["controller.kubernetes.io/hash"],
			strings.TrimPrefix(revision.Name, t.source.name+"-")}
	}

	if newest < 0 {
		return nil, fmt.Errorf("%s has no revisions yet", t.source)
	}

	return slices.DeleteFunc(names, func(name string) bool { return name == "" }), nil
}
