package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// chartFile is the name of the packaged chart, whose version is that of the release without the v.
func (r *release) chartFile(name string) string {
	return fmt.Sprintf("%s-%s.tgz", name, strings.TrimPrefix(r.version, "v"))
}

var (
	chartVersion    = regexp.MustCompile(`(?m)^version:.*$`)
	chartAppVersion = regexp.MustCompile(`(?m)^appVersion:.*$`)
	// A place of an image in the values, and the tag of it.
	chartImage = regexp.MustCompile(`(?m)^(\s*repository:\s*)["']?` + placeholder + `/([a-z-]+)["']?[ \t]*$`)
	chartTag   = regexp.MustCompile(`(?m)^(\s*tag:\s*)["']?` + placeholderTag + `["']?[ \t]*$`)
)

// packageChart packages the chart with the version and the images of the release. It is not helm package,
// whose archive has the time in it.
func (r *release) packageChart(context.Context, *binaries) error {
	dir := filepath.Join(r.root, r.chart)
	if _, err := os.Stat(filepath.Join(dir, "Chart.yaml")); errors.Is(err, os.ErrNotExist) {
		r.say("  there is no chart in %s: the release has none", dir)
		return nil
	}

	loaded, err := loader.LoadDir(dir) // without what .helmignore names
	if err != nil {
		return fmt.Errorf("load %s: %w", dir, err)
	}

	var files []packed
	for _, f := range loaded.Raw {
		data := f.Data
		switch path.Base(f.Name) {
		case "Chart.yaml":
			if data, err = r.chartMetadata(data); err != nil {
				return err
			}
		case "values.yaml": // those of users, and a copy that templates read
			data = r.chartValues(data)
		}
		files = append(files, packed{name: loaded.Name() + "/" + f.Name, mode: 0o644, data: data})
	}

	var archive bytes.Buffer
	if err := tarGz(&archive, files, r.date); err != nil {
		return err
	}

	released, err := loader.LoadArchive(bytes.NewReader(archive.Bytes()))
	if err != nil {
		return fmt.Errorf("load the packaged chart: %w", err)
	}
	if err := r.checkChart(released); err != nil {
		return err
	}

	return os.WriteFile(r.path(r.chartFile(loaded.Name())), archive.Bytes(), 0o644)
}

func (r *release) chartMetadata(data []byte) ([]byte, error) {
	if len(chartVersion.FindAll(data, -1)) != 1 || len(chartAppVersion.FindAll(data, -1)) != 1 {
		return nil, errors.New("Chart.yaml has not one line with version: and one with appVersion:")
	}
	data = chartVersion.ReplaceAllLiteral(data, []byte("version: "+strings.TrimPrefix(r.version, "v")))
	return chartAppVersion.ReplaceAllLiteral(data, []byte(`appVersion: "`+r.version+`"`)), nil
}

// chartValues puts the images of the release in the place of those that are built locally.
func (r *release) chartValues(data []byte) []byte {
	data = chartImage.ReplaceAll(data, []byte("${1}"+strings.ReplaceAll(r.repository, "$", "$$")+"/${2}"))
	return chartTag.ReplaceAll(data, []byte("${1}"+r.version))
}

// checkChart returns an error unless the chart installs this release.
func (r *release) checkChart(c *chart.Chart) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("the packaged chart: %w", err)
	}
	if got := "v" + c.Metadata.Version; got != r.version || c.Metadata.AppVersion != r.version {
		return fmt.Errorf("the packaged chart has version %s, and appVersion %s", got, c.Metadata.AppVersion)
	}

	values, err := util.ToRenderValues(c, nil,
		common.ReleaseOptions{Name: c.Name(), Namespace: "kruise-system", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return fmt.Errorf("the packaged chart: %w", err)
	}

	rendered, err := engine.Render(c, values)
	if err != nil {
		return fmt.Errorf("the packaged chart: %w", err)
	}

	text := strings.Join(slices.Collect(maps.Values(rendered)), "\n")
	for _, p := range r.programs {
		if p.image != "" && !strings.Contains(text, r.imageName(p)) {
			return fmt.Errorf("the packaged chart does not install %s", r.imageName(p))
		}
	}

	return r.checkImages("the packaged chart", text)
}
