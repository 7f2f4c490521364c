package set

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// every selects all containers.
const every = "*"

func newImage(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions(f, streams, "image updated")
	cmd := &cobra.Command{
		Use:                   "image (-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
		DisableFlagsInUseLine: true,
		Short:                 "Set the images of containers and init containers",
		Long: templates.LongDesc(`
			Set the images of containers and init containers.

			The name * means all containers. Only images that differ are sent. An ImagePullJob has one image and no container: *=IMAGE sets it.
			` + resources + `, imagepulljob.`),
		Example: templates.Examples(`
			# Update the container app of a CloneSet in place
			kubectl afloat set image cloneset/web app=nginx:1.27

			# Give all containers and init containers of all CloneSets with a label one image
			kubectl afloat set image clonesets -l tier=front *=nginx:1.27

			# Change a sidecar of a SidecarSet
			kubectl afloat set image sidecarset/logs agent=fluent-bit:3.1

			# Print what a file would become, without an API server
			kubectl afloat set image -f web.yaml app=nginx:1.27 --local -o yaml`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}

			named, pairs, err := cmdutil.GetResourcesAndPairs(args, "image")
			if err != nil {
				return err
			}

			images, _, err := cmdutil.ParsePairs(pairs, "image", false)
			if err != nil {
				return err
			}

			_, all := images[every]
			switch {
			case len(images) == 0:
				return errors.New("at least one image update is required")
			case all && len(images) > 1:
				return errors.New(
					"all containers are already specified by *, but saw more than one container_name=container_image pairs")
			}

			return o.run(cmd.Context(), named, func(object *unstructured.Unstructured) error {
				return setImages(object, images)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

// setImages sets the images of the containers of an object. images maps container names to images.
func setImages(object *unstructured.Unstructured, images map[string]string) error {
	if workload.Kind(object) == workload.ImagePullJob {
		image, ok := images[every]
		if !ok {
			return errors.New("an ImagePullJob has no containers; write *=IMAGE")
		}
		return unstructured.SetNestedField(object.Object, image, "spec", "image")
	}

	containers, err := workload.Containers(object)
	if err != nil {
		return err
	}

	var unknown []error
	for _, name := range slices.Sorted(maps.Keys(images)) {
		found := false
		for _, c := range containers {
			if name == every || name == c.Name() {
				c.Fields["image"], found = images[name], true
			}
		}
		if !found {
			unknown = append(unknown, fmt.Errorf("unable to find container named %q", name))
		}
	}

	return utilerrors.NewAggregate(unknown)
}
