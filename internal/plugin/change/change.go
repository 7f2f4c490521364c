// Package change changes objects for users of the plugin by JSON patches, which contain only the differences
// and are guarded by the resourceVersion on which they are based. On a conflict, it tries again (OPS-132).
// Fields that the plugin does not know stay unchanged.
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

	"github.com/afloat-project/afloat/internal/engine/jsondiff"
	"github.com/afloat-project/afloat/internal/engine/subset"
)

// FieldManager is the field manager of changes, unless the user names another one.
const FieldManager = "kubectl-afloat"

// Options define how changes are made.
type Options struct {
	// DryRun prevents writing. With the server's dry run, the API server returns what would result.
	DryRun cmdutil.DryRunStrategy
	// FieldManager is the field manager of the change; empty means [FieldManager].
	FieldManager string
	// Subresource is the subresource that is changed, such as status; empty means the object itself.
	Subresource string
	// FieldValidation is how the API server treats unknown fields of created objects; if it is empty, the
	// server decides.
	FieldValidation string
}

func (o Options) manager() string {
	if o.FieldManager == "" {
		return FieldManager
	}
	return o.FieldManager
}

// Apply changes the object of info, and stores the result in info. It passes a document of the object to
// edit, which may be called again with a newer one; an error of edit ends Apply. changed reports whether
// there was a difference.
func Apply(ctx context.Context, info *resource.Info, o Options,
	edit func(*unstructured.Unstructured) error) (changed bool, err error) {
	first := true
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first { // somebody else has changed the object
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

		helper := resource.NewHelper(info.Client, info.Mapping).
			WithFieldManager(o.manager()).
			WithSubresource(o.Subresource).
			DryRun(o.DryRun == cmdutil.DryRunServer)
		answer, err := helper.Patch(info.Namespace, info.Name, types.JSONPatchType, body,
			&metav1.PatchOptions{})
		// A patch that no longer fits a list is rejected as invalid, not as a conflict.
		if apierrors.IsInvalid(err) && moved(helper, before) {
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

// moved reports whether the object has another resourceVersion by now.
func moved(helper *resource.Helper, before *unstructured.Unstructured) bool {
	now, err := helper.Get(before.GetNamespace(), before.GetName())
	if err != nil {
		return false
	}
	version, err := meta.NewAccessor().ResourceVersion(now)
	return err == nil && version != before.GetResourceVersion()
}

// Document returns the object of info as a document.
func Document(info *resource.Info) (*unstructured.Unstructured, error) {
	document, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%s was read as a %T", Name(info), info.Object)
	}
	return document, nil
}

// Patch returns the JSON patch from one document to another. The API server rejects it with a conflict unless
// the object still has the resourceVersion of before.
func Patch(before, after *unstructured.Unstructured) ([]byte, error) {
	from, err := decoded(before)
	if err != nil {
		return nil, err
	}
	to, err := decoded(after)
	if err != nil {
		return nil, err
	}
	operations := jsondiff.Between(from, to, jsondiff.Deep)
	// The API server takes the resourceVersion as a precondition.
	if version := before.GetResourceVersion(); version != "" {
		operations = append([]jsonpatch.Operation{jsonpatch.NewOperation("replace",
			"/metadata/resourceVersion", version)}, operations...)
	}

	return json.Marshal(operations)
}

// decoded returns an object as it is sent, whatever types its values have here.
func decoded(object *unstructured.Unstructured) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
	}
	return subset.Object(text)
}
