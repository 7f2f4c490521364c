package takeover

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// tool is a tool that keeps a Deployment as it is in a repository.
type tool struct {
	// name describes the tool and the application of the Deployment.
	name string
	// kind, namespace and object identify the object that shows whether the tool is paused. If namespace is
	// empty, all namespaces are searched.
	kind              schema.GroupVersionKind
	namespace, object string
	// pause is the command that pauses the tool.
	pause string
	// paused reports whether the object that was read is paused.
	paused func(*unstructured.Unstructured) bool
}

func suspended(o *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	return is
}

func notAutomated(o *unstructured.Unstructured) bool {
	automated, has, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy", "automated")
	return !has || automated == nil || automated["enabled"] == false
}

// toolsOf returns the tools that manage an object, judging by its labels, annotations and field managers.
func toolsOf(object *unstructured.Unstructured) []tool {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	wrote := func(prefix string) bool {
		for _, entry := range object.GetManagedFields() {
			if strings.HasPrefix(entry.Manager, prefix) {
				return true
			}
		}
		return false
	}

	var tools []tool
	application, _, _ := strings.Cut(annotations["argocd.argoproj.io/tracking-id"], ":")
	for _, name := range []string{labels["argocd.argoproj.io/instance"],
		annotations["argocd.argoproj.io/instance"]} {
		if application == "" {
			application = name
		}
	}

	maybe := ""
	if instance := labels["app.kubernetes.io/instance"]; application == "" && instance != "" &&
		annotations["meta.helm.sh/release-name"] == "" {
		application, maybe = instance, ", by label app.kubernetes.io/instance"
	}

	if application != "" || wrote("argocd") {
		named := application
		if named == "" {
			named = "APPLICATION"
		}
		namespace := "argocd"
		// The application is outside Argo CD's own namespace.
		if in, name, has := strings.Cut(named, "_"); has {
			namespace, named = in, name
		}
		tools = append(tools,
			tool{name: "Argo CD (application " + named + maybe + ")",
				kind: schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1",
					Kind: "Application"},
				object: named, paused: notAutomated,
				pause: "kubectl -n " + namespace + " patch application " + named +
					` --type=merge -p '{"spec":{"syncPolicy":{"automated":null}}}'` +
					" (and in what makes the application: an app of apps or ApplicationSet puts it back)"})
	}

	for _, flux := range []struct{ group, version, kind, command, writer string }{
		{"kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomization", "kustomize-controller"},
		{"helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmrelease", "helm-controller"}} {
		name, namespace := labels[flux.group+"/name"], labels[flux.group+"/namespace"]
		if name == "" && !wrote(flux.writer) {
			continue
		}
		if name == "" {
			name, namespace = "NAME", "NAMESPACE"
		}
		tools = append(tools,
			tool{name: "Flux (" + flux.kind + " " + namespace + "/" + name + ")",
				kind:      schema.GroupVersionKind{Group: flux.group, Version: flux.version, Kind: flux.kind},
				namespace: namespace, object: name, paused: suspended,
				pause: "flux -n " + namespace + " suspend " + flux.command + " " + name})
	}

	if by := labels["app.kubernetes.io/managed-by"]; by != "" && by != "Helm" && len(tools) == 0 {
		tools = append(tools,
			tool{name: by + " (by label app.kubernetes.io/managed-by)", pause: "pause it there"})
	}

	return tools
}

// managed refuses to go on while a tool would revert the changes of the takeover. A tool that is known to be
// paused is no obstacle.
func (t *takeover) managed(ctx context.Context, manager *unstructured.Unstructured) error {
	if manager == nil {
		return nil
	}

	var active []tool
	for _, tool := range toolsOf(manager) {
		if paused, known := t.pausedTool(ctx, tool); paused {
			t.say("%s is paused: let it be so", tool.name)
			continue
		} else if !known {
			tool.name += ", of which is not known whether it is paused"
		}
		active = append(active, tool)
	}

	if len(active) == 0 {
		return nil
	}

	var names, commands []string
	for _, tool := range active {
		names, commands = append(names, tool.name), append(commands, "  "+tool.pause)
	}

	if t.allowManaged {
		t.say("goes on although it may be put back at any time by %s", strings.Join(names, "; "))
		return nil
	}

	return fmt.Errorf("nothing was changed: %s is managed by %s, which would start the other manager again while this one runs. Pause it:\n%s\n"+
		"--allow-managed goes on nevertheless",
		installation.Of(manager), strings.Join(names, "; "), strings.Join(commands, "\n"))
}

// pausedTool reports whether a tool is paused, if the object that shows it is in this cluster and readable.
func (t *takeover) pausedTool(ctx context.Context, of tool) (paused, known bool) {
	if of.kind.Empty() {
		return false, false
	}
	if of.namespace != "" {
		object, err := installation.Get(ctx, t.client, of.kind, of.namespace, of.object)
		return err == nil && object != nil && of.paused(object), err == nil && object != nil
	}

	var found []bool
	if err := installation.Each(ctx, t.client, of.kind, func(object *unstructured.Unstructured) error {
		if object.GetName() == of.object {
			found = append(found, of.paused(object))
		}
		return nil
	}); err != nil {
		return false, false
	}

	return len(found) > 0 && !slices.Contains(found, false), len(found) > 0
}

// healed returns an error if the Deployment is about to be replaced although the manager in it runs again:
// somebody has started it since it was stopped, and two managers would act.
func (t *takeover) healed(ctx context.Context, live *unstructured.Unstructured) error {
	if live == nil || installation.IsOurs(live) != t.back {
		return nil
	}
	pods, err := t.podsOf(ctx, live)
	if err != nil {
		return err
	}
	replicas, has, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if len(pods) == 0 && has && replicas == 0 {
		return nil
	}
	return t.startedAgain(live)
}

// startedAgain returns an error that names who has restarted a stopped manager.
func (t *takeover) startedAgain(live *unstructured.Unstructured) error {
	text := installation.Of(live) + " was started again meanwhile, and two managers would act"
	if by := t.writerOf(live, "replicas"); by != "" {
		text += "; its replicas were written by " + by
	}
	for _, tool := range toolsOf(live) {
		text += "\npause " + tool.name + ": " + tool.pause
	}
	return &hopeless{errors.New(text)}
}

// displaced returns an error if somebody has replaced the new manager by the one that was there before.
func (t *takeover) displaced(live *unstructured.Unstructured) error {
	if referenceTo(live) != t.managerReference() || installation.IsOurs(live) != t.back {
		return nil
	}
	text := installation.Of(live) + " was put back meanwhile to what it was"
	if by := cmp.Or(t.writerOf(live, "template"), t.writerOf(live, "replicas")); by != "" {
		text += " by " + by
	}
	for _, tool := range toolsOf(live) {
		text += "\npause " + tool.name + ": " + tool.pause
	}
	return &hopeless{errors.New(text)}
}

// writerOf returns the field manager that last wrote a field of the spec, except this command.
func (t *takeover) writerOf(live *unstructured.Unstructured, field string) string {
	by := ""
	var last int64
	for _, entry := range live.GetManagedFields() {
		var set fieldpath.Set
		if entry.FieldsV1 == nil || entry.Subresource != "" || entry.Manager == t.fieldManager ||
			set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil ||
			!set.Has(fieldpath.MakePathOrDie("spec", field)) {
			continue
		}
		if at := entry.Time; by == "" || at != nil && at.Unix() >= last {
			by = entry.Manager
			if at != nil {
				last = at.Unix()
			}
		}
	}

	return by
}
