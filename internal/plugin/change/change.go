// Package change changes objects as users of the plugin ask for it: by JSON patches of what differs and
// nothing else, guarded by the version that was decided about, and tried again when somebody else was faster
// (OPS-132). Fields that the plugin does not know stay as they are.
package change

import (
	"context"
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/util/retry"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// FieldManager is who made the changes, unless the user says another name.
const FieldManager = "kubectl-afloat"

// Options say how changes are made.
type Options struct {
	// DryRun: nothing is written; with the server's, the API server says what would be.
	DryRun cmdutil.DryRunStrategy
	// FieldManager is who makes the change; empty means [FieldManager].
	FieldManager string
	// Subresource is the part of the object that is changed, such as status; empty means the object.
	Subresource string
	// FieldValidation is what the API server does about fields that it does not know, of objects that are
	// created; empty leaves it to it.
	FieldValidation string
}

func (o Options) manager() string {
	if o.FieldManager == "" {
		return FieldManager
	}
	return o.FieldManager
}

// Apply changes the object that info names, and puts what it is then into info. edit changes a document of
// it, and may be called again with a newer one; its error ends it. changed tells whether there was anything
// to change.
func Apply(ctx context.Context, info *resource.Info, o Options,
	edit func(*unstructured.Unstructured) error) (changed bool, err error) {
	first := true
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first { // somebody else was faster
			if err := info.Get(); err != nil {
				return fmt.Errorf("reading %s again: %w", Name(info), err)
			}
		}
		first = false
		before, err := Document(info)
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		if err := edit(after); err != nil {
			return err
		}
		if changed = !equality.Semantic.DeepEqual(before.Object, after.Object); !changed ||
			o.DryRun == cmdutil.DryRunClient {
			return info.Refresh(after, true)
		}
		body, err := Patch(before, after)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		helper := resource.NewHelper(info.Client,
			info.Mapping).WithFieldManager(o.manager()).WithSubresource(o.Subresource).
			DryRun(o.DryRun == cmdutil.DryRunServer)
		answer, err := helper.Patch(info.Namespace, info.Name, types.JSONPatchType, body,
			&metav1.PatchOptions{})
		if apierrors.IsInvalid(err) && moved(helper, before) { // a patch that no longer fits a list is not refused as a conflict
			return apierrors.NewConflict(info.Mapping.Resource.GroupResource(), info.Name, err)
		}
		if err != nil {
			return err //nolint:wrapcheck // kubectl's error handling looks at it
		}
		return info.Refresh(answer, true)
	})
	if apierrors.IsConflict(err) {
		return false, fmt.Errorf("%s was changed by somebody else again and again: %w", Name(info), err)
	}
	return changed, err
}

// moved tells whether the object is another version by now.
func moved(helper *resource.Helper, before *unstructured.Unstructured) bool {
	now, err := helper.Get(before.GetNamespace(), before.GetName())
	if err != nil {
		return false
	}
	version, err := meta.NewAccessor().ResourceVersion(now)
	return err == nil && version != before.GetResourceVersion()
}

// Document is the object of info as a document.
func Document(info *resource.Info) (*unstructured.Unstructured, error) {
	document, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%s was read as a %T", Name(info), info.Object)
	}
	return document, nil
}

// Patch is the JSON patch from one document to another. It is refused with a conflict unless the object is
// the version that before is.
func Patch(before, after *unstructured.Unstructured) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", before.GetName(), err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", after.GetName(), err)
	}
	operations, err := jsonpatch.CreatePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("comparing versions of %s: %w", before.GetName(), err)
	}
	if version := before.GetResourceVersion(); version != "" { // the API server takes it as the version to change
		operations = append([]jsonpatch.Operation{jsonpatch.NewOperation("replace",
			"/metadata/resourceVersion", version)}, operations...)
	}
	return json.Marshal(operations)
}
