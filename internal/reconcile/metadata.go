package reconcile

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// metadataAtOnce is the page size of a list of metadata. The annotations of each object may take 256 KiB.
const metadataAtOnce = 100

// EachMetadata calls a function for the metadata of each object of a kind that the options select, page by page, until it returns an
// error.
func EachMetadata(
	ctx context.Context, reader client.Reader, kind schema.GroupVersionKind,
	each func(object *metav1.PartialObjectMetadata) error, options ...client.ListOption,
) error {
	list := &metav1.PartialObjectMetadataList{}
	for more := true; more; more = list.Continue != "" {
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := reader.List(ctx, list, append([]client.ListOption{client.Limit(metadataAtOnce), client.Continue(list.Continue)}, options...)...); err != nil {
			return fmt.Errorf("listing metadata of %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			if err := each(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
