package doctor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// managerName is the field manager of the manager. commandName is the field manager of a takeover, which
// writes the same fields once.
const managerName, commandName = "kruise-manager", "kubectl-afloat"

// written is the last write of a field manager, with those fields that the manager writes as well.
type written struct {
	by     string
	at     time.Time
	fields []string
}

// shared returns the field managers that wrote the object within the last hour and own fields for which
// wanted returns a name. It reports in ours whether the manager is one of them; commandName is left out.
func (d *doctor) shared(object *unstructured.Unstructured,
	wanted func(entry metav1.ManagedFieldsEntry, path string) string) (ours bool, others []written) {
	for _, entry := range object.GetManagedFields() {
		if entry.Time == nil || d.now.Sub(entry.Time.Time) > recent || entry.FieldsV1 == nil {
			continue
		}
		var set fieldpath.Set
		if set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
			continue
		}
		w := written{by: entry.Manager, at: entry.Time.Time}
		set.Iterate(func(path fieldpath.Path) {
			if field := wanted(entry, path.String()); field != "" && !slices.Contains(w.fields, field) {
				w.fields = append(w.fields, field)
			}
		})

		switch {
		case len(w.fields) == 0, entry.Manager == commandName:
		case entry.Manager == managerName:
			ours = true
		default:
			others = append(others, w)
		}
	}

	return ours, others
}

// checkFields looks for field managers that write the same fields as the manager, such as a GitOps tool that
// reverts changes. Both must have written within the last hour, because a single write is just an
// installation.
func (d *doctor) checkFields(ctx context.Context) error {
	const check = "fields of others"
	fights := func(object *unstructured.Unstructured, wanted func(metav1.ManagedFieldsEntry, string) string) {
		ours, others := d.shared(object, wanted)
		for _, other := range others {
			if ours {
				d.add(check, Warning, installation.Of(object),
					fmt.Sprintf("%s wrote %s ago what the manager writes, too: %s", other.by,
						ago(d.now.Sub(other.at)), strings.Join(other.fields, ", ")),
					"let it ignore "+strings.Join(other.fields, ", ")+
						"; the page Certificates of the manual has the list")
			}
		}
	}

	if err := d.configurations(ctx, func(live, _ *unstructured.Unstructured) error {
		fights(live, func(_ metav1.ManagedFieldsEntry, path string) string {
			switch {
			case strings.HasSuffix(path, ".clientConfig.caBundle"):
				return "webhooks[].clientConfig.caBundle"
			case path == ".metadata.annotations.template":
				return "metadata.annotations.template"
			}
			for _, name := range installation.DerivedEntries {
				if strings.HasPrefix(path, fmt.Sprintf(".webhooks[name=%q]", name)) {
					return "webhooks entry " + name
				}
			}
			return ""
		})
		return nil
	}); err != nil {
		return err
	}

	if err := d.definitions(ctx, func(live *unstructured.Unstructured) {
		fights(live, func(_ metav1.ManagedFieldsEntry, path string) string {
			if strings.HasSuffix(path, ".clientConfig.caBundle") {
				return "spec.conversion.webhook.clientConfig.caBundle"
			}
			return ""
		})
	}); err != nil {
		return err
	}

	for _, name := range []string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet"} {
		if err := d.each(ctx, name, func(object *unstructured.Unstructured) error {
			fights(object, func(_ metav1.ManagedFieldsEntry, path string) string {
				if strings.HasPrefix(path, ".status.") {
					return "status"
				}
				return ""
			})
			d.scalers(object)
			return nil
		}); err != nil {
			d.unreadable(check, err)
		}
	}

	return nil
}

// scalers looks for two field managers that both set the replicas of a workload, such as an autoscaler and a
// tool that reverts what it sets.
func (d *doctor) scalers(object *unstructured.Unstructured) {
	_, others := d.shared(object, func(_ metav1.ManagedFieldsEntry, path string) string {
		if path == ".spec.replicas" {
			return "spec.replicas"
		}
		return ""
	})

	if len(others) > 1 {
		var names []string
		for _, other := range others {
			names = append(names, other.by)
		}
		d.add("fields of others", Warning, installation.Of(object),
			"within the last hour its number of replicas was set by "+strings.Join(names, " and "),
			"let one of them leave spec.replicas alone")
	}
}
