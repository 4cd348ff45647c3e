"""`SummaryWriter`: what happens during training, in event files."""

import atexit
import os
import socket
import time
import weakref

import numpy

from flambeau.utils.tensorboard import embedding, pictures, summary, wire
from flambeau.utils.tensorboard.graph import graph_of
from flambeau.utils.tensorboard.records import FileWriter
from flambeau.utils.tensorboard.summary import array_of

_writers: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _write_the_rest():
    for writer in list(_writers):
        writer.flush()


class SummaryWriter:
    """Writes event files to a folder; TensorBoard shows them while training goes on."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120,
                 filename_suffix=""):
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self.options = {"max_queue": max_queue, "flush_secs": flush_secs,
                        "filename_suffix": filename_suffix}
        self.file_writer = self.all_writers = None
        self._get_file_writer()
        _writers.add(self)

    def _get_file_writer(self):
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, **self.options)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                # SessionLog START: a reader forgets what had come at and after this step
                self.file_writer.add_event(wire.message(7, wire.integer(1, 1)), self.purge_step)
                self.purge_step = None
        return self.file_writer

    def get_logdir(self):
        """The folder."""
        return self.log_dir

    def _add(self, value, step, walltime):
        self._get_file_writer().add_summary([value], step, walltime)

    # -- numbers -----------------------------------------------------------------------------

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False,
                   double_precision=False):
        """One number of a curve."""
        value = summary.scalar(tag, scalar_value, new_style, double_precision)
        self._add(value, global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several numbers drawn together, each as a run of its own."""
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, **self.options)
            self.all_writers[folder].add_summary([summary.scalar(main_tag, value)], global_step,
                                                 walltime)

    def add_tensor(self, tag, tensor, global_step=None, walltime=None):
        """A whole tensor, as floats."""
        array = array_of(tensor)
        content = summary._tensor(summary.FLOAT, array.shape,
                                    wire.singles(5, array.reshape(-1).tolist()))
        self._add(summary._value(tag, content), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None,
                      max_bins=None):
        """How values are spread."""
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits,
                          bucket_counts, global_step=None, walltime=None):
        """A histogram that has been counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summary.raw_histogram(tag, min, max, num, sum, sum_squares, bucket_limits,
                                          bucket_counts), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None,
                    global_step=None):
        """What was tried and what came of it, as a run of its own."""
        values = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = FileWriter(folder, **self.options)
        for value in values:
            writer.add_summary([value])
        for tag, number in metric_dict.items():
            writer.add_summary([summary.scalar(tag, number)], global_step)
        writer.close()

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127,
                     weights=None, walltime=None):
        """Precision against recall."""
        value = summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._add(value, global_step, walltime)

    def add_pr_curve_raw(self, tag, true_positive_counts, false_positive_counts,
                         true_negative_counts, false_negative_counts, precision, recall,
                         global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Precision against recall, counted already."""
        self._add(summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts,
            false_negative_counts, precision, recall, num_thresholds), global_step, walltime)

    def add_custom_scalars(self, layout):
        """Which scalars are drawn together."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(self, tags, category="default", title="untitled"):
        """Several scalars in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags, category="default", title="untitled"):
        """A scalar between two others."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    # -- pictures, sound, text -----------------------------------------------------------------

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A picture, of floats between 0 and 1 or of uint8."""
        pixels = pictures.as_bytes(pictures.in_order(array_of(img_tensor), dataformats))
        self._add(summary.image(tag, pixels), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """A batch of pictures, as a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(self, tag, img_tensor, box_tensor, global_step=None, walltime=None,
                             rescale=1, dataformats="CHW", labels=None):
        """A picture with boxes (left, top, right, bottom) drawn in."""
        pixels = pictures.as_bytes(pictures.in_order(array_of(img_tensor), dataformats))
        pixels = pictures.with_boxes(pixels, array_of(box_tensor).reshape(-1, 4))
        self._add(summary.image(tag, pictures.rescaled(pixels, rescale)), global_step, walltime)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A matplotlib figure, or several."""
        several = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        images = numpy.stack([pictures.of_figure(each) for each in several])
        self.add_image(tag, images, global_step, walltime, "NHWC")
        if close:
            for each in several:
                each.clear()

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """Sound between -1 and 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    # -- models and embeddings -----------------------------------------------------------------

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """The modules of a model, joined as one call on the input joins them."""
        graph = graph_of(model, () if input_to_model is None else input_to_model)
        self._get_file_writer().add_graph(graph)

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default",
                      metadata_header=None):
        """Points for the projector, with a label and a picture each if there are any."""
        embedding.write(self.log_dir, array_of(mat), metadata,
                        None if label_img is None else array_of(label_img), global_step, tag,
                        metadata_header)

    # -- the end -----------------------------------------------------------------------------

    def flush(self):
        """Let TensorBoard see everything up to here."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """Write the rest, and close; adding more begins another file."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
