// Package describe implements kubectl's command describe. For the project's kinds it shows status,
// conditions, pods by revision and events (OPS-165).
package describe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectldescribe "k8s.io/kubectl/pkg/cmd/describe"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/describe"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util/completion"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/plugin/pods"
)

// withPods lists the kinds that control pods.
var withPods = []string{"CloneSet", "StatefulSet", "DaemonSet", "UnitedDeployment", "BroadcastJob"}

// New returns the command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	flags := kubectldescribe.NewDescribeFlags(f, streams)
	cmd := &cobra.Command{
		Use: "describe (-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",

		DisableFlagsInUseLine: true,
		Short:                 "Show details of a specific resource or group of resources",
		Long: templates.LongDesc(`
			Show details of objects. Of Afloat's kinds these are the status, the conditions, the pods by revision and the events; of
			others, what kubectl describe shows.`),
		Example: templates.Examples(`
			# Describe a CloneSet and its pods
			kubectl afloat describe cloneset/web

			# Describe all StatefulSets of apps.kruise.io with a label
			kubectl afloat describe asts -l team=shop`),
		ValidArgsFunction: completion.ResourceTypeAndNameCompletionFunc(f),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := flags.ToOptions("kubectl afloat", args)
			if err != nil {
				return err
			}

			kubectl := o.Describer
			o.Describer = func(mapping *meta.RESTMapping) (describe.ResourceDescriber, error) {
				if strings.HasSuffix(mapping.GroupVersionKind.Group, ".kruise.io") {
					return &describer{Factory: f, mapping: mapping}, nil
				}
				return kubectl(mapping)
			}

			if err := o.Validate(); err != nil {
				return err
			}
			return run(o)
		},
	}

	flags.AddFlags(cmd)
	return cmd
}

// run describes everything that the arguments name. If kubectl does not find the first of two arguments such
// as clone/a and clone/b, it takes the second for the beginning of a name, so run describes each of them by
// itself.
func run(o *kubectldescribe.DescribeOptions) error {
	args := o.BuilderArgs
	if len(args) < 2 || !strings.Contains(args[0], "/") {
		return o.Run()
	}

	var errs []error
	for i, arg := range args {
		if i > 0 {
			fmt.Fprint(o.Out, "\n\n")
		}
		o.BuilderArgs = []string{arg}
		errs = append(errs, o.Run())
	}
	return utilerrors.NewAggregate(errs)
}

// describer describes objects of one resource.
type describer struct {
	cmdutil.Factory
	mapping *meta.RESTMapping
}

// Describe returns the description of an object.
func (d *describer) Describe(namespace, name string, settings describe.DescriberSettings) (string, error) {
	ctx := context.Background() // kubectl's interface passes no context
	client, err := d.DynamicClient()
	if err != nil {
		return "", err
	}

	object, err := client.Resource(d.mapping.Resource).Namespace(namespace).
		Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}

	var text bytes.Buffer
	aligned := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	w := describe.NewPrefixWriter(aligned)

	header(w, object)

	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	template := podTemplate(spec)
	fields(w, "Spec", spec, "selector", "template", "volumeClaimTemplates")
	if template != nil {
		describe.DescribePodTemplate(template, w)
	} else {
		fields(w, "Template", map[string]any{"template": spec["template"]})
	}

	status, _, _ := unstructured.NestedMap(object.Object, "status")
	fields(w, "Status", status, "conditions")
	conditions(w, status)

	if slices.Contains(withPods, object.GetKind()) {
		own, err := pods.Of(ctx, d, object)
		if err != nil {
			return "", err
		}
		byRevision(w, own, status)
	}

	if settings.ShowEvents {
		clientset, err := d.KubernetesClientSet()
		if err != nil {
			return "", err
		}
		events, err := clientset.CoreV1().Events(namespace).SearchWithContext(ctx, scheme.Scheme, object)
		if err != nil {
			return "", fmt.Errorf("listing events of %s: %w", name, err)
		}
		describe.DescribeEvents(events, w)
	}

	w.Flush()
	err = aligned.Flush()
	return text.String(), err
}

func header(w describe.PrefixWriter, object *unstructured.Unstructured) {
	w.Write(describe.LEVEL_0, "Name:\t%s\n", object.GetName())
	if namespace := object.GetNamespace(); namespace != "" {
		w.Write(describe.LEVEL_0, "Namespace:\t%s\n", namespace)
	}
	w.Write(describe.LEVEL_0, "Kind:\t%s\n", object.GroupVersionKind().GroupKind())
	w.Write(describe.LEVEL_0, "API version:\t%s\n", object.GetAPIVersion())
	if created := object.GetCreationTimestamp(); !created.IsZero() {
		w.Write(describe.LEVEL_0, "Created:\t%s\n", created.UTC().Format(time.RFC1123Z))
	}
	if deleted := object.GetDeletionTimestamp(); deleted != nil {
		w.Write(describe.LEVEL_0, "Being deleted since:\t%s\n", deleted.UTC().Format(time.RFC1123Z))
	}

	pairs(w, "Labels", object.GetLabels())

	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	pairs(w, "Annotations", annotations)

	if selector, ok, _ := unstructured.NestedMap(object.Object, "spec", "selector"); ok {
		parsed := metav1.LabelSelector{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(selector, &parsed) == nil {
			w.Write(describe.LEVEL_0, "Selector:\t%s\n", metav1.FormatLabelSelector(&parsed))
		}
	}

	status, _, _ := unstructured.NestedMap(object.Object, "status")
	if observed, ok := status["observedGeneration"].(int64); ok && observed < object.GetGeneration() {
		w.Write(describe.LEVEL_0, "Observed:\tgeneration %d of %d: the status is older than the spec\n",
			observed, object.GetGeneration())
	}
}

func pairs(w describe.PrefixWriter, title string, all map[string]string) {
	title += ":"
	for _, key := range sortedKeys(all) {
		w.Write(describe.LEVEL_0, "%s\t%s=%s\n", title, key, all[key])
		title = ""
	}
}

func sortedKeys[V any](all map[string]V) []string {
	var keys []string
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// fields writes a section with one line for each field that has a value.
func fields(w describe.PrefixWriter, title string, all map[string]any, except ...string) {
	var lines []string
	for _, key := range sortedKeys(all) {
		if !slices.Contains(except, key) {
			lines = flatten(lines, key, all[key])
		}
	}
	if len(lines) == 0 {
		return
	}

	w.Write(describe.LEVEL_0, "%s:\n", title)
	for _, line := range lines {
		w.Write(describe.LEVEL_1, "%s\n", line)
	}
}

func flatten(lines []string, path string, value any) []string {
	switch typed := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(typed) {
			lines = flatten(lines, path+"."+key, typed[key])
		}
	case []any:
		for i, item := range typed {
			lines = flatten(lines, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case nil:
	default:
		lines = append(lines, fmt.Sprintf("%s:\t%v", path, typed))
	}
	return lines
}

// podTemplate returns the pod template of the spec, or nil if there is none.
func podTemplate(spec map[string]any) *corev1.PodTemplateSpec {
	raw, _, _ := unstructured.NestedMap(spec, "template")
	if containers, _, _ := unstructured.NestedSlice(raw, "spec", "containers"); len(containers) == 0 {
		return nil
	}

	template := &corev1.PodTemplateSpec{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(raw, template) != nil {
		return nil
	}
	return template
}

func conditions(w describe.PrefixWriter, status map[string]any) {
	all, _, _ := unstructured.NestedSlice(status, "conditions")
	if len(all) == 0 {
		return
	}

	w.Write(describe.LEVEL_0, "Conditions:\n")
	rows := [][]string{{"Type", "Status", "Reason", "Since", "Message"}}
	for _, raw := range all {
		condition, _ := raw.(map[string]any)
		var row []string
		for _, key := range []string{"type", "status", "reason", "lastTransitionTime", "message"} {
			text, _, _ := unstructured.NestedString(condition, key)
			row = append(row, text)
		}
		rows = append(rows, row)
	}

	table(w, rows)
}

// table writes rows with aligned columns, independent of the text above them.
func table(w describe.PrefixWriter, rows [][]string) {
	var text bytes.Buffer
	aligned := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(aligned, strings.Join(row, "\t")+"\n")
	}
	_ = aligned.Flush()

	for line := range strings.Lines(text.String()) {
		w.Write(describe.LEVEL_1, "%s\n", strings.TrimRight(line, " \n"))
	}
}

// byRevision writes the pods of each revision, beginning with the update revision.
func byRevision(w describe.PrefixWriter, all []corev1.Pod, status map[string]any) {
	update, _, _ := unstructured.NestedString(status, "updateRevision")
	if update == "" { // a DaemonSet of v1alpha1
		update, _, _ = unstructured.NestedString(status, "daemonSetHash")
	}

	groups := map[string][]corev1.Pod{}
	for i := range all {
		revision := all[i].Labels[pub.ControllerRevisionHash]
		groups[revision] = append(groups[revision], all[i])
	}

	revisions := sortedKeys(groups)
	isUpdate := func(revision string) bool {
		return revision != "" && update != "" &&
			(revision == update || strings.HasSuffix(update, "-"+revision) ||
				strings.HasSuffix(revision, "-"+update))
	}
	slices.SortStableFunc(revisions, func(a, b string) int {
		switch {
		case isUpdate(a) == isUpdate(b):
			return 0
		case isUpdate(a):
			return -1
		}
		return 1
	})

	if len(revisions) == 0 {
		w.Write(describe.LEVEL_0, "Pods:\t<none>\n")
	}

	for _, revision := range revisions {
		title := "without a revision"
		switch {
		case isUpdate(revision):
			title = "of the update revision " + revision
		case revision != "":
			title = "of revision " + revision
		}

		ready, rows := 0, [][]string{{"Name", "Ready", "Status", "Restarts", "Node", "Lifecycle"}}

		for i := range groups[revision] {
			pod := &groups[revision][i]
			if podutils.IsPodReady(pod) {
				ready++
			}
			rows = append(rows, row(pod))
		}

		w.Write(describe.LEVEL_0, "Pods %s: %d, ready %d\n", title, len(groups[revision]), ready)
		table(w, rows)
	}
}

func row(pod *corev1.Pod) []string {
	ready, restarts, state := 0, int32(0), string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		restarts += c.RestartCount
		if c.Ready {
			ready++
		}
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			state = c.State.Waiting.Reason
		}
	}

	if pod.DeletionTimestamp != nil {
		state = "Terminating"
	}

	return []string{
		pod.Name,
		fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers)),
		state,
		fmt.Sprint(restarts),
		pod.Spec.NodeName,
		pod.Labels[pub.LifecycleState],
	}
}
